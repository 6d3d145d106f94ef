//! A snapshot of the environment variables, replaceable in tests.
//!
//! An empty variable counts as unset, because launchers clear variables that way.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(super) struct Variables(BTreeMap<String, String>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VariableValue {
    pub(super) variable: String,
    pub(super) value: usize,
}

impl Variables {
    /// Skips values that are not UTF-8, which no variable here needs.
    pub(super) fn of_process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.text(name).is_some()
    }

    pub(super) fn number(&self, name: &str, problems: &mut Vec<String>) -> Option<VariableValue> {
        let text = self.text(name)?;
        match text.parse() {
            Ok(value) => Some(VariableValue { variable: name.to_owned(), value }),
            Err(_) => {
                problems.push(format!("{name} is \"{text}\": expected a whole number from 0 on"));
                None
            }
        }
    }

    pub(super) fn matching(&self, is_one: impl Fn(&str) -> bool) -> Vec<(&str, &str)> {
        let set = self.0.iter().map(|(name, value)| (name.as_str(), value.trim()));
        set.filter(|(name, value)| is_one(name) && !value.is_empty()).collect()
    }
}

impl FromIterator<(String, String)> for Variables {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        Self(variables.into_iter().collect())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::world) fn variables(text: &str) -> Variables {
        text.split_whitespace()
            .map(|pair| pair.split_once('=').expect("NAME=VALUE"))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn empty_is_unset_and_numbers_are_checked() {
        let set = variables("A= B=7 C=-1 D=0,1");
        let mut problems = Vec::new();
        assert!(!set.has("A") && set.has("B") && !set.has("E"));
        assert_eq!(
            set.number("B", &mut problems),
            Some(VariableValue { variable: "B".to_owned(), value: 7 })
        );
        assert_eq!((set.number("A", &mut problems), set.number("C", &mut problems)), (None, None));
        assert_eq!(set.number("D", &mut problems), None);
        assert_eq!(
            problems,
            [
                "C is \"-1\": expected a whole number from 0 on",
                "D is \"0,1\": expected a whole number from 0 on"
            ]
        );
    }
}

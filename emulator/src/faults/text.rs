//! The text form of faults: `NAME:FIELD=VALUE:…`. A printed fault parses to the same fault.
//! `Fault::check` compares it with the machine.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::fault::{Calls, Checksum, Fault, FaultError};

/// Parsing removes each field, so unknown fields remain and can be reported.
struct FaultFields<'a>(BTreeMap<&'a str, Option<&'a str>>);

impl<'a> FaultFields<'a> {
    fn parse(text: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut fields = BTreeMap::new();
        for part in text {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (part, None),
            };
            if fields.insert(name, value).is_some() {
                return Err(format!("{name} is given twice"));
            }
        }
        Ok(Self(fields))
    }

    fn text(&mut self, name: &str) -> Result<Option<&'a str>, String> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Some(value)) => Ok(Some(value)),
            Some(None) => Err(format!("{name} needs a value: {name}=…")),
        }
    }

    fn number<N: FromStr>(&mut self, name: &str) -> Result<Option<N>, String> {
        let parse = |value: &str| {
            value.parse().map_err(|_| format!("{name} is {value:?}, which is not a whole number"))
        };
        self.text(name)?.map(parse).transpose()
    }

    fn required<N: FromStr>(&mut self, name: &str) -> Result<N, String> {
        self.number(name)?.ok_or_else(|| format!("{name} is missing"))
    }

    fn word(&mut self, name: &str) -> Result<bool, String> {
        match self.0.remove(name) {
            None => Ok(false),
            Some(None) => Ok(true),
            Some(Some(value)) => Err(format!("{name} takes no value, {value:?} was given")),
        }
    }

    fn calls(&mut self) -> Result<Calls, String> {
        let function = self.text("call")?.map(str::to_owned);
        Ok(Calls { at: self.required("at")?, function, card: self.number("card")? })
    }

    fn end(self) -> Result<(), String> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(format!("it has no field {name:?}")),
        }
    }
}

fn link(text: &str) -> Result<[u32; 2], String> {
    let ends = text.split_once('-').and_then(|(a, b)| Some([a.parse().ok()?, b.parse().ok()?]));
    ends.ok_or_else(|| format!("cards is {text:?}; expected the two ends of a link, as in 0-1"))
}

fn parse(text: &str) -> Result<Fault, String> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let mut fields = FaultFields::parse(parts)?;
    let fault = match name {
        "out-of-memory" => Fault::OutOfMemory { at: fields.required("at")?, card: fields.number("card")? },
        "error" => Fault::Error { code: fields.required("code")?, calls: fields.calls()? },
        "card-lost" => Fault::CardLost { calls: fields.calls()? },
        "kill" => Fault::Kill { calls: fields.calls()? },
        "slow" => {
            let delay = Duration::from_micros(fields.required("us")?);
            Fault::Slow { card: fields.required("card")?, delay }
        }
        "stuck" => {
            let limit = fields.number("limit-ms")?.map(Duration::from_millis);
            Fault::Stuck { at: fields.required("at")?, card: fields.required("card")?, limit }
        }
        "link-down" => {
            let cards = link(fields.text("cards")?.ok_or("cards is missing")?)?;
            Fault::LinkDown { at: fields.required("at")?, cards }
        }
        "bit-flip" => {
            let checksum = if fields.word("checksum")? { Checksum::Verified } else { Checksum::Absent };
            let (at, card) = (fields.required("at")?, fields.required("card")?);
            Fault::BitFlip { at, card, seed: fields.number("seed")?.unwrap_or(0), checksum }
        }
        _ => {
            let known = "out-of-memory, error, card-lost, kill, slow, stuck, link-down, bit-flip";
            return Err(format!("there is no fault {name:?}; there are {known}"));
        }
    };
    fields.end()?;
    Ok(fault)
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        parse(text).map_err(|reason| FaultError::Text { text: text.to_owned(), reason })
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at={}", self.at)?;
        if let Some(function) = &self.function {
            write!(f, ":call={function}")?;
        }
        self.card.map_or(Ok(()), |card| write!(f, ":card={card}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory { at, card } => {
                write!(f, "out-of-memory:at={at}")?;
                card.map_or(Ok(()), |card| write!(f, ":card={card}"))
            }
            Self::Error { calls, code } => write!(f, "error:{calls}:code={code}"),
            Self::CardLost { calls } => write!(f, "card-lost:{calls}"),
            Self::Kill { calls } => write!(f, "kill:{calls}"),
            Self::Slow { card, delay } => write!(f, "slow:card={card}:us={}", delay.as_micros()),
            Self::Stuck { at, card, limit } => {
                write!(f, "stuck:at={at}:card={card}")?;
                limit.map_or(Ok(()), |limit| write!(f, ":limit-ms={}", limit.as_millis()))
            }
            Self::LinkDown { at, cards: [a, b] } => write!(f, "link-down:at={at}:cards={a}-{b}"),
            Self::BitFlip { at, card, seed, checksum } => {
                write!(f, "bit-flip:at={at}:card={card}:seed={seed}")?;
                if *checksum == Checksum::Verified { f.write_str(":checksum") } else { Ok(()) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_prints_as_it_is_written() {
        for text in [
            "out-of-memory:at=3",
            "out-of-memory:at=3:card=1",
            "error:at=2:call=HcclAllReduce:card=1:code=507015",
            "card-lost:at=40:card=1",
            "kill:at=7:call=aclnnMatmul",
            "slow:card=2:us=500",
            "stuck:at=1:card=0",
            "stuck:at=1:card=0:limit-ms=20",
            "link-down:at=5:cards=0-3",
            "bit-flip:at=1:card=2:seed=9",
            "bit-flip:at=1:card=2:seed=9:checksum",
        ] {
            let fault: Fault = text.parse().expect("a fault");
            assert_eq!(fault.to_string(), text);
        }
    }

    #[test]
    fn what_is_wrong_with_a_text_is_said() {
        let refusal = |text: &str| text.parse::<Fault>().expect_err("wrong").to_string();
        assert_eq!(
            refusal("meteor:at=1"),
            "fault \"meteor:at=1\": there is no fault \"meteor\"; there are out-of-memory, error, card-lost, kill, slow, \
             stuck, link-down, bit-flip"
        );
        assert!(refusal("error:at=1").ends_with("code is missing"));
        assert!(refusal("error:at=x:code=1").ends_with("at is \"x\", which is not a whole number"));
        assert!(refusal("kill:at=1:at=2").ends_with("at is given twice"));
        assert!(refusal("kill:at").ends_with("at needs a value: at=…"));
        assert!(refusal("slow:card=1:us=1:rank=2").ends_with("it has no field \"rank\""));
        assert!(refusal("link-down:at=1:cards=3").ends_with("expected the two ends of a link, as in 0-1"));
        assert!(
            refusal("bit-flip:at=1:card=0:checksum=no")
                .ends_with("checksum takes no value, \"no\" was given")
        );
    }
}

//! First CANN version of a function, from `sys/include`.

use std::collections::BTreeMap;

/// Returns the marked versions. Versions of libclang disagree on comments before macros, so the
/// text is parsed.
pub(super) fn marks(header: &str) -> BTreeMap<&str, &str> {
    let lines = header.lines().zip(header.lines().skip(1));
    let marked = lines.filter_map(|(comment, declared)| {
        let version = comment.strip_prefix("/** @since ")?.strip_suffix(" */")?;
        let name = match declared.strip_prefix("ACLNN_OPERATOR(") {
            Some(operator) => operator.split(',').next()?,
            None => declared.split('(').next()?.rsplit([' ', '*']).next()?,
        };
        Some((name, version))
    });
    marked.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn a_mark_is_of_the_declaration_behind_it() {
        let header = "/** @since 9.x */\nACLNN_OPERATOR(aclnnCdist, int x)\nACLNN_OPERATOR(aclnnReal, int x)\n\
                      /** @since 8.5 */\nconst char *aclName(int a,\n    int b);\nint aclOther(void);\n";
        assert_eq!(marks(header), BTreeMap::from([("aclName", "8.5"), ("aclnnCdist", "9.x")]));
    }

    /// The only check of the list on machines without libclang.
    #[test]
    fn the_list_has_the_versions_that_the_headers_say() {
        let sys = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sys");
        let list = fs::read_to_string(sys.join("src/symbols.rs")).unwrap();
        let younger = |line: &&str| {
            line.trim_start().starts_with('[') && line.contains("\"] ") && !line.contains("\"8.1\"]")
        };
        let mut count = 0;
        for folder in [sys.join("include"), sys.join("include/dropin")] {
            let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            for path in entries.filter(|path| path.extension().is_some_and(|extension| extension == "h")) {
                let header = fs::read_to_string(path).unwrap();
                for (name, version) in marks(&header) {
                    let is_there = [format!("\"{version}\"] fn {name}("), format!("\"{version}\"] {name}, ")]
                        .iter()
                        .any(|wanted| list.contains(wanted.as_str()));
                    assert!(
                        is_there,
                        "{name} is not since {version} in symbols.rs: run `cargo xtask bindings`"
                    );
                    count += 1;
                }
            }
        }
        assert_eq!(list.lines().filter(younger).count(), count);
    }
}

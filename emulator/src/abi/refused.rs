//! Declared functions that are not modelled, with reasons. `docs/EMULATOR.md` includes this table.

use std::fmt::Write;

/// The first match counts; a prefix ends in `*`.
const REASONS: &[(&[&str], &str)] = &[
    (&["aclrtRandomNumAsync"], "a card's random numbers for a seed are not documented"),
    (
        &["aclrtGetArgsFromExceptionInfo", "aclrtGetFuncHandleFromExceptionInfo"],
        "tasks of the emulator have no arguments in device memory and no binary",
    ),
    (
        &["HcclCommSuspend", "HcclCommResume", "aclrtDeviceTaskAbort"],
        "stopping a device between steps and resuming its communicators (step recovery) is not modelled",
    ),
    (&["HcclCommInitClusterInfo*"], "no communicators from a rank table file; create them from a root info"),
    (
        &[
            "aclrtCreateLabel*",
            "aclrtDestroyLabel*",
            "aclrtSetLabel",
            "aclrtSwitchLabelByIndex",
            "aclrtActiveStream",
            "aclrtSwitchStream",
        ],
        "streams do not select tasks or other streams by a value in memory",
    ),
    (
        &["aclmdlRI*"],
        "conditional tasks, capture into a model under construction, and listings of a model are not modelled",
    ),
    (
        &["aclrtLaunchKernel*", "aclrtBinary*", "aclrtKernelArgs*"],
        "kernels run as host functions registered by name, with arguments of aclrtLaunchKernelWithConfig",
    ),
    (&["aclSet*"], "addresses of a repeatable executor cannot be changed; make a new one"),
    (&["aclprof*"], "no profiler data is written; timed mode has its own timeline"),
    (&["aclnn*"], "the operator has no row in the table of operators"),
];

pub(crate) fn reason(name: &str) -> Option<&'static str> {
    let fits = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => *pattern == name,
    };
    REASONS.iter().find(|(names, _)| names.iter().any(fits)).map(|(_, reason)| *reason)
}

pub(crate) fn markdown(coverage: &[(&'static str, ascend_tp_sys::Library, bool)]) -> String {
    let refused: Vec<&str> =
        coverage.iter().filter(|(_, _, modelled)| !modelled).map(|(name, _, _)| *name).collect();
    let mut text = format!(
        "{} of {} declared functions are modelled; these {} refuse:\n\n| functions | why |\n|---|---|\n",
        coverage.len() - refused.len(),
        coverage.len(),
        refused.len()
    );
    for (_, why) in REASONS {
        let names: Vec<&str> = refused.iter().copied().filter(|name| reason(name) == Some(*why)).collect();
        if !names.is_empty() {
            let _ = writeln!(text, "| {} | {why} |", names.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_that_refuses_says_why() {
        let coverage = crate::abi::coverage();
        let silent: Vec<&str> = coverage
            .iter()
            .filter(|(name, _, modelled)| !modelled && reason(name).is_none())
            .map(|(name, _, _)| *name)
            .collect();
        assert!(silent.is_empty(), "without a reason in REASONS: {silent:?}");
    }
}

//! Lists CANN's two-phase aclnn operators with `modelled` or `refused`. Operators for other chips
//! only are refused.

use anyhow::{Context as _, Result, bail};

use crate::built::cargo;

const FIRST_PHASE: &str = "GetWorkspaceSize";

pub(crate) fn list() -> Result<String> {
    let mut command = cargo();
    command.args(["run", "--quiet", "--package", "ascend-tp-emulator-dropin", "--bin", "exports"]);
    let output = command.stderr(std::process::Stdio::inherit()).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the list of exports was not written ({})", output.status);
    }
    let exports = String::from_utf8(output.stdout).context("the list of exports is not UTF-8")?;
    Ok(operators(&exports))
}

/// Input lines are `library<TAB>name<TAB>answer`.
fn operators(exports: &str) -> String {
    let functions = exports.lines().filter_map(|line| line.strip_prefix("libopapi.so\t")?.split_once('\t'));
    let mut operators: Vec<String> = functions
        .filter_map(|(name, answer)| {
            let answer = if answer == "modelled" { answer } else { "refused" };
            Some(format!("{}\t{answer}\n", name.strip_suffix(FIRST_PHASE)?))
        })
        .collect();
    operators.sort();
    operators.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_is_a_function_with_a_first_phase() {
        let exports = "libhccl.so\tHcclSend\tmodelled\nlibopapi.so\taclnnB\trefused\nlibopapi.so\taclnnBGetWorkspaceSize\trefused\n\
                       libopapi.so\taclnnA\tmodelled\nlibopapi.so\taclnnAGetWorkspaceSize\tmodelled\nlibopapi.so\taclnnAlone\trefused\n\
                       libopapi.so\taclnnC\telsewhere\nlibopapi.so\taclnnCGetWorkspaceSize\telsewhere\n";
        assert_eq!(operators(exports), "aclnnA\tmodelled\naclnnB\trefused\naclnnC\trefused\n");
    }
}

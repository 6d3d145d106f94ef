//! Tests of `env`: the environment of the started program, and refusals.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use crate::doctor::libraries;
use crate::{command, stderr, stdout};

fn run(variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = command();
    command.env_remove("LD_LIBRARY_PATH").env_remove("ASCEND_EMULATOR").env_remove("ASCEND_TP_LIBRARIES");
    command
        .env("PYTHONPATH", "/opt/modules")
        .envs(variables.iter().copied())
        .arg("env")
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn a_program_finds_the_libraries_first_and_its_exit_code_is_kept() {
    let folder = libraries().canonicalize().unwrap();
    let folder = folder.to_str().unwrap();
    let script = "echo $LD_LIBRARY_PATH $PYTHONPATH $1; exit 7";
    for (variables, arguments) in [
        (
            vec![("LD_LIBRARY_PATH", "/opt/other")],
            vec!["--libraries", folder, "--", "sh", "-c", script, "x", "--json"],
        ),
        (
            vec![("LD_LIBRARY_PATH", "/opt/other"), ("ASCEND_TP_LIBRARIES", folder)],
            vec!["--", "sh", "-c", script, "x", "--json"],
        ),
    ] {
        let ended = run(&variables, &arguments);
        let expected = format!("{folder}:/opt/other {folder}/python:/opt/modules --json\n");
        assert_eq!(stdout(&ended), expected, "{}", stderr(&ended));
        assert_eq!(ended.status.code(), Some(7));
    }
}

#[test]
fn what_the_libraries_would_refuse_later_is_refused_at_once() {
    let folder = libraries().to_str().unwrap();
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("libascendcl.so"), "").unwrap();
    let other = other.path().to_str().unwrap();
    let python = tempfile::tempdir().unwrap();
    let interpreter = python.path().join("python3");
    fs::write(&interpreter, "#!/bin/sh\nprintf 'torch 2.8.0\\ntorch_npu 2.9.0\\n'\n").unwrap();
    fs::set_permissions(&interpreter, fs::Permissions::from_mode(0o755)).unwrap();
    let interpreter = interpreter.to_str().unwrap();
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], &'a str);
    let cases: [Case<'_>; 6] = [
        (&[], &["--", "true"], "--libraries: not given"),
        (&[], &["--libraries", "/no/such/folder", "--", "true"], "is not a folder of drop-in libraries"),
        (
            &[("LD_LIBRARY_PATH", other)],
            &["--libraries", folder, "--", "true"],
            "another set of CANN libraries",
        ),
        (
            &[("ASCEND_EMULATOR", "strickt")],
            &["--libraries", folder, "--", "true"],
            "`strickt` is not a known word",
        ),
        (&[], &["--libraries", folder, "--", interpreter, "train.py"], "expected 2.9.0, found 2.8.0"),
        (&[], &["--libraries", folder, "--", "no-such-program-here"], "no-such-program-here"),
    ];
    for (variables, arguments, words) in cases {
        let ended = run(variables, arguments);
        let said = stderr(&ended);
        assert_eq!((ended.status.code(), stdout(&ended)), (Some(2), String::new()), "{said}");
        assert!(said.contains(words), "no `{words}` in {said}");
    }
}

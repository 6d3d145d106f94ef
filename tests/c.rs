//! C and C++ programs on the drop-in libraries: threads, forked processes, mpirun, network
//! namespaces, operators, refusals, strict mode.
//!
//! A program is skipped with a note if the host lacks a C++ compiler, mpirun, or the permission for
//! network namespaces.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock, PoisonError};

use ascend_tp_emulator::compiler::Compiler;
use ascend_tp_emulator_dropin::{real_library, write_libraries};

const LIBRARIES: [&str; 4] = ["-lascendcl", "-lhccl", "-lnnopbase", "-lopapi"];

fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        // A temporary folder would never be removed.
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c");
        std::fs::create_dir_all(&folder).expect("a folder");
        let real = real_library().expect("cargo built the shared library for this test");
        write_libraries(&folder, &real).expect("the libraries are written");
        folder
    })
}

#[expect(clippy::print_stdout, reason = "says what did not run")]
fn skip(what: &str, why: &str) {
    println!("skipped {what}: {why}");
}

fn is_there(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Builds tests/c/`source` once.
fn build(compiler: &str, source: &str, options: &[&str]) -> PathBuf {
    static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let folder = folder();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join(Path::new(source).file_stem().expect("a name"));
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if built.contains(&program) {
        return program;
    }
    let mut command = Command::new(compiler);
    command.args(["-O1", "-Wall", "-Wextra", "-Werror", "-I"]).arg(root.join("sys/include"));
    command
        .arg("-o")
        .arg(&program)
        .arg(root.join("tests/c").join(source))
        .arg("-L")
        .arg(folder)
        .args(options);
    let output = command.output().unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(output.status.success(), "{compiler} {source}: {}", text(&output.stderr));
    built.insert(program.clone());
    program
}

fn linked(compiler: &str, source: &str) -> PathBuf {
    let mut options = vec!["-Wl,--no-undefined", "-pthread"];
    options.extend(LIBRARIES);
    build(compiler, source, &options)
}

/// Returns a command with the emulator's libraries and no other variables about cards.
fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", folder());
    let shaping = ["ASCEND_EMULATOR", "ASCEND_RT_VISIBLE_DEVICES", "ASCEND_SLOG_PRINT_TO_STDOUT"];
    for variable in shaping.into_iter().chain(["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]) {
        command.env_remove(variable);
    }
    // A deadlock fails the test instead of blocking it.
    command.env("HCCL_CONNECT_TIMEOUT", "60").env("HCCL_EXEC_TIMEOUT", "60");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}

#[track_caller]
fn says(output: &Output, line: &str) {
    assert!(
        text(&output.stdout).lines().any(|found| found == line),
        "expected {line}, found {}",
        text(&output.stdout)
    );
}

#[test]
fn threads_share_a_root_info() {
    let program = linked("cc", "threads.c");
    says(&run(&mut command(&program)), "4 threads agree");
    // Resolves all symbols at the start.
    says(
        &run(command(&program).env("LD_BIND_NOW", "1").env("ASCEND_EMULATOR", "cards=4,threads=1")),
        "4 threads agree",
    );
}

#[test]
fn operators_run_and_refuse() {
    says(&run(&mut command(linked("cc", "operator.c"))), "the operator ran");
}

#[test]
fn operators_of_each_family_run() {
    says(&run(&mut command(linked("cc", "families.c"))), "the families ran");
}

#[test]
fn libraries_opened_one_by_one_are_one_machine() {
    says(&run(&mut command(build("cc", "handles.c", &["-ldl"]))), "one machine");
}

#[test]
fn beside_another_toolkit_every_call_is_refused() {
    let elsewhere = tempfile::tempdir().expect("a folder");
    let built = build("cc", "other_toolkit.c", &["-shared", "-fPIC", "-Wl,-soname,libascendcl.so"]);
    let other = elsewhere.path().join("libascendcl.so");
    std::fs::copy(built, &other).expect("copied");
    let output = run(command(build("cc", "beside.c", &["-ldl"])).arg(&other));
    says(&output, "refused");
    let said = text(&output.stderr);
    assert!(said.contains(&format!("{} is loaded in this process", other.display())), "{said}");
}

#[test]
fn a_child_of_a_process_in_use_is_refused() {
    let output = run(&mut command(linked("cc", "fork_after_init.c")));
    says(&output, "the child was refused");
    let said = text(&output.stderr);
    assert_eq!(said.matches("was forked from one that had called aclInit").count(), 1, "{said}");
}

#[test]
fn what_is_not_modelled_says_its_name_once() {
    let said = text(&run(&mut command(linked("cc", "not_modelled.c"))).stderr);
    for name in [
        "aclopCompileAndExecute",
        "HcclGroupStart",
        "aclmdlCreateDesc",
        "aclGetTensorDescType",
        "aclnnSinkhornGetWorkspaceSize",
    ] {
        assert_eq!(said.matches(&format!("{name} is not modelled")).count(), 1, "{name}: {said}");
    }
}

#[test]
fn a_refused_call_is_seen_and_said_once() {
    let program = linked("cc", "refused.c");
    let expected = [
        "aclrtMalloc returned 100000: ",
        "aclrtSetDevice returned 107001: no device 100",
        "aclopCompileAndExecute returned 200006: aclopCompileAndExecute is not modelled",
        "aclmdlCreateDesc returned 200006: aclmdlCreateDesc is not modelled",
        "HcclGetRankSize returned 2: ",
    ];
    let once = |said: &str| {
        for line in expected {
            assert_eq!(said.matches(&format!("ascend emulator: {line}")).count(), 1, "{line}: {said}");
        }
        assert_eq!(said.lines().count(), expected.len(), "{said}");
    };
    let output = run(&mut command(&program));
    once(&text(&output.stderr));
    says(&output, "every refusal was seen");
    once(&text(&run(command(&program).env("ASCEND_EMULATOR", "cann=8.1")).stderr));
    let output = run(command(&program).env("ASCEND_SLOG_PRINT_TO_STDOUT", "1"));
    assert_eq!(text(&output.stderr), "");
    once(&text(&output.stdout).replace("every refusal was seen\n", ""));
    for variable in ["0", "1"] {
        let quiet = run(command(&program)
            .env("ASCEND_EMULATOR", "quiet")
            .env("ASCEND_SLOG_PRINT_TO_STDOUT", variable));
        assert_eq!(
            (text(&quiet.stderr), text(&quiet.stdout)),
            (String::new(), "every refusal was seen\n".to_owned())
        );
    }
}

#[test]
fn strict_mode_says_a_refused_call_once_in_its_report() {
    let output =
        command(linked("cc", "refused.c")).env("ASCEND_EMULATOR", "strict").output().expect("it starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(66), "{said}");
    assert_eq!(said.matches("aclmdlCreateDesc is not modelled").count(), 1, "{said}");
    assert!(said.contains("misuse: no device 100") && !said.contains("aclrtSetDevice returned"), "{said}");
    assert!(!said.contains("aclInit"), "{said}");
}

fn strict(program: &Path, words: &[&str], asked: &str) -> (String, Option<i32>) {
    let output = command(program).args(words).env("ASCEND_EMULATOR", asked).output().expect("it starts");
    (text(&output.stdout) + &text(&output.stderr), output.status.code())
}

#[test]
fn what_a_program_asks_and_a_pool_it_leaves_are_notes_of_strict_mode() {
    let program = linked("cc", "questions.c");
    let (said, code) = strict(&program, &[], "strict");
    assert_eq!(code, Some(0), "{said}");
    for note in [
        "package \"no_such_package\" is not installed",
        "no context is current",
        "note: leak: 1 buffer of 4194304",
    ] {
        assert_eq!(said.matches(note).count(), 1, "{note}: {said}");
    }
    assert!(said.contains("as on a card"), "{said}");
    let (said, code) = strict(&program, &[], "strict,align=64");
    assert!(code == Some(0) && said.contains("odd"), "{said}");
    let (first, code) = strict(&program, &["leave"], "strict");
    assert!(code == Some(66) && first.contains("emulator: leak: 1 buffer of 1000"), "{first}");
    let (said, code) = strict(&program, &["leave"], "strict,ignore=leak");
    assert!(code == Some(0) && said.contains("note: leak: 1 buffer of 1000"), "{said}");
    let baseline = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(baseline.path(), first).expect("written");
    let asked = format!("strict,baseline={}", baseline.path().display());
    let (said, code) = strict(&program, &["leave"], &asked);
    assert!(code == Some(0) && said.contains("note: leak: 1 buffer of 1000"), "{said}");
    std::fs::write(baseline.path(), "ascend emulator: race: something else\n").expect("written");
    assert_eq!(strict(&program, &["leave"], &asked).1, Some(66));
}

#[test]
fn a_library_may_call_the_runtime_as_it_is_loaded() {
    let mut options = vec!["-shared", "-fPIC"];
    options.extend(LIBRARIES);
    let library = build("cc", "constructor.c", &options);
    let mut options = vec!["-ldl"];
    options.extend(LIBRARIES);
    let program = build("cc", "loads.c", &options);
    says(&run(command(&program).arg(&library)), "loaded");
    let (said, code) = strict(&program, &[library.to_str().expect("UTF-8")], "strict");
    assert!(code == Some(0) && said.contains("loaded"), "{said}");
}

#[test]
fn options_and_limits_hold() {
    let program = linked("cc", "options.c");
    says(
        &run(command(program).env("ASCEND_EMULATOR", "fault=stuck:at=1:card=0,fault=stuck:at=1:card=0")),
        "options and limits hold",
    );
}

#[test]
fn a_fault_of_the_environment_strikes() {
    let program = linked("cc", "threads.c");
    let fault = "quiet,fault=error:at=3:call=aclrtMalloc:code=207001";
    let output = command(&program).env("ASCEND_EMULATOR", fault).output().expect("it starts");
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("injected fault: code 207001 at event 3"), "{said}");
    let output =
        command(&program).env("ASCEND_EMULATOR", "fault=slow:card=99:us=5").output().expect("it starts");
    let said = text(&output.stderr);
    assert!(
        !output.status.success() && said.contains("fault slow:card=99:us=5: there is no card 99"),
        "{said}"
    );
}

#[test]
fn a_kernel_of_a_c_program_is_one_of_its_functions() {
    let include = format!("-I{}", folder().join("include").display());
    let mut options = vec!["-Wl,--no-undefined", include.as_str()];
    options.extend(LIBRARIES);
    let program = build("cc", "kernel.c", &options);
    says(&run(&mut command(program)), "the kernel ran");
}

#[test]
fn a_kernel_compiled_for_this_host_runs_as_one_for_a_card() {
    let compiler = match Compiler::find() {
        Ok(compiler) => compiler,
        Err(why) => return skip("a compiled kernel", &why.to_string()),
    };
    let library = folder().join("libkernels.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/examples/add_custom.cpp");
    let entries = compiler.build(&[source], &[], &library).unwrap_or_else(|error| panic!("{error}"));
    std::fs::write(folder().join("aclrtlaunch_add_custom.h"), entries[0].header()).expect("written");
    says(&run(command(linked("cc", "compiled_kernel.c")).arg(&library)), "the compiled kernel ran");
    if !is_there("c++") {
        return skip("a kernel launched by its name", "no c++");
    }
    let include = format!("-I{}", folder().display());
    let mut options = vec![include.as_str(), "-lkernels"];
    options.extend(LIBRARIES);
    says(&run(&mut command(build("c++", "launch_by_name.cpp", &options))), "launched by its name");
}

#[test]
fn what_needs_no_card_is_answered_by_doing_nothing() {
    says(&run(&mut command(linked("cc", "answered.c"))), "all answered");
}

#[test]
fn the_environment_is_obeyed_or_refused() {
    let program = linked("cc", "threads.c");
    for (variable, value, expected) in [
        ("ASCEND_EMULATOR", "cards=4,turbo", "`turbo` is not a known word"),
        ("ASCEND_EMULATOR", "cards=0", "1 to 1024 cards"),
        ("ASCEND_RT_VISIBLE_DEVICES", "none", "expected ids from 0 to 7"),
        ("ASCEND_RT_VISIBLE_DEVICES", "2,5", "not so: cards >= WORLD"),
    ] {
        let output = command(&program).env(variable, value).output().expect("it starts");
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{variable}={value}: {said}");
    }
}

#[test]
fn a_cpp_program_links_and_runs() {
    if !is_there("c++") {
        return skip("owner.cpp", "there is no C++ compiler `c++`");
    }
    says(&run(&mut command(linked("c++", "owner.cpp"))), "objects came and went");
}

#[test]
fn forked_processes_share_a_root_info() {
    says(&run(&mut command(linked("cc", "fork.c"))), "3 processes agree");
}

#[test]
fn mpirun_starts_ranks() {
    let compiles =
        || Command::new("mpicc").args(["-E", "-x", "c", "-include", "mpi.h", "/dev/null"]).output();
    if !is_there("mpirun") || !is_there("mpicc") || !compiles().is_ok_and(|output| output.status.success()) {
        return skip("mpi.c", "there is no mpirun with mpicc and mpi.h");
    }
    let program = linked("mpicc", "mpi.c");
    let mut mpirun = command("mpirun");
    // For containers: root, and fewer cores than ranks.
    mpirun.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    if text(&run(Command::new("mpirun").arg("--version")).stdout).contains("Open MPI") {
        mpirun.args(["--oversubscribe", "-x", "LD_LIBRARY_PATH"]);
    }
    let output = run(mpirun.args(["-np", "4"]).arg(&program));
    for rank in 0..4 {
        says(&output, &format!("rank {rank} of 4 agrees"));
    }
}

#[test]
fn ranks_meet_across_network_namespaces() {
    let namespaces = ["--user", "--map-root-user", "--net"];
    let permitted = Command::new("unshare").args(namespaces).args(["ip", "link"]).output();
    if !permitted.is_ok_and(|output| output.status.success()) || !is_there("nsenter") {
        return skip(
            "namespaces.sh",
            "network namespaces, or the tools unshare, nsenter and ip, are not there",
        );
    }
    let program = linked("cc", "rank.c");
    let root_info = folder().join("root-info-of-namespaces");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/namespaces.sh");
    let mut ranks = command("unshare");
    let output = run(ranks.args(namespaces).arg("sh").arg(script).arg(program).arg(root_info));
    says(&output, "rank 0 of 2 agrees");
    says(&output, "rank 1 of 2 agrees");
}

#[test]
fn strict_mode_fails_a_program_with_a_race() {
    let program = linked("cc", "race.c");
    for seed in 1..=3 {
        let strict = format!("strict,seed={seed}");
        let output = command(&program).env("ASCEND_EMULATOR", &strict).output().expect("it starts");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(66), "{said}");
        assert!(
            said.starts_with(&format!("ascend emulator: strict, seed {seed}\n")),
            "the seed comes first: {said}"
        );
        assert!(
            said.contains("aclrtMemsetAsync") && said.contains("aclrtMemcpyAsync"),
            "both calls are named: {said}"
        );
        says(&output, "end of main");
        let output = run(command(&program).arg("ordered").env("ASCEND_EMULATOR", &strict));
        assert_eq!(text(&output.stderr), format!("ascend emulator: strict, seed {seed}\n"));
    }
}

#[test]
fn strict_mode_passes_a_program_that_is_right_and_tells_of_a_refused_call() {
    for seed in [0, 11] {
        let strict = format!("strict,seed={seed}");
        says(&run(command(linked("cc", "threads.c")).env("ASCEND_EMULATOR", &strict)), "4 threads agree");
        let output =
            command(linked("cc", "operator.c")).env("ASCEND_EMULATOR", &strict).output().expect("it starts");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(66), "{said}");
        assert!(said.contains("aclnnMulsGetWorkspaceSize") && said.contains("found [3, 2]"), "{said}");
    }
}

//! Tests of `doctor` on an imitated host: healthy, or with one fault that the report must name
//! alone.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

use ascend_tp_emulator_dropin::{real_library, write_libraries};
use serde_json::Value;

use crate::{command, kernel, root};

/// Returns a toolkit's libraries, written once per run.
pub(crate) fn libraries() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let made = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        write_libraries(folder.path(), &real_library().unwrap()).unwrap();
        folder
    });
    made.path()
}

const NPU_SMI: &str = r#"#!/bin/sh
case "$2" in
    -l) printf '\tTotal Count                    : 8\n' ;;
    *) printf '\tHealth Status                  : OK\n' ;;
esac
"#;

const HCCN_TOOL: &str = r#"#!/bin/sh
case "$3" in
    -link) echo "link status: UP" ;;
    -net_health) echo "net health status: Success" ;;
    -ip) printf "ipaddr:10.1.0.%s\nnetmask:255.255.255.0\n" "$2" ;;
    -tls) echo "dev_id:$2, tls switch[0](0:disable, 1:enable), tls alarm time threshold[60]days" ;;
esac
"#;

const TOOLKIT: &str = "usr/local/Ascend/ascend-toolkit/latest";
const DRIVER: &str = "usr/local/Ascend/driver/version.info";

/// An imitated host with eight cards and files of real drivers' and toolkits' format.
struct Host {
    folder: tempfile::TempDir,
    variables: Vec<(&'static str, String)>,
    arguments: Vec<String>,
}

impl Host {
    fn new() -> Self {
        let host =
            Self { folder: tempfile::tempdir().unwrap(), variables: Vec::new(), arguments: Vec::new() };
        for card in 0..8 {
            host.write(&format!("dev/davinci{card}"), "");
        }
        for name in ["davinci_manager", "devmm_svm", "hisi_hdc"] {
            host.write(&format!("dev/{name}"), "");
        }
        host.write("etc/group", "root:x:0:\nHwHiAiUser:x:1001:\n");
        host.write(
            "proc/self/status",
            "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t1000 1001\n",
        );
        host.write("proc/mounts", "tmpfs /dev/shm tmpfs rw,nosuid,nodev,size=16777216k 0 0\n");
        host.write(
            DRIVER,
            "Version=25.0.rc1.1\nascendhal_version=7.35.23\nInnerversion=V100R001C21SPC002B220\n\
             compatible_version=[V100R001C17],[V100R001C18],[V100R001C19],[V100R001C20],[V100R001C21]\n",
        );
        let arch = std::env::consts::ARCH;
        host.write(
            &format!("{TOOLKIT}/{arch}-linux/ascend_toolkit_install.info"),
            &format!(
                "package_name=Ascend-cann-toolkit\nversion=8.1.RC1\ninnerversion=V100R001C21SPC001B238\n\
                 compatible_version=[V100R001C15],[V100R001C18],[V100R001C19],[V100R001C20],[V100R001C21]\narch={arch}\n"
            ),
        );
        symlink(libraries(), host.path(&format!("{TOOLKIT}/lib64"))).unwrap();
        host.tool("npu-smi", NPU_SMI);
        host.tool("hccn_tool", HCCN_TOOL);
        host
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn replace(&self, path: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.path(path)).unwrap();
        assert!(text.contains(from), "{path} has no {from}");
        self.write(path, &text.replace(from, to));
    }

    fn tool(&self, name: &str, script: &str) {
        self.write(&format!("tools/{name}"), script);
        fs::set_permissions(self.path(&format!("tools/{name}")), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn rank_table(&mut self, address_of_card_3: &str) {
        let address =
            |card: usize| if card == 3 { address_of_card_3.to_owned() } else { format!("10.1.0.{card}") };
        let device = |card: usize| {
            format!(r#"{{"device_id":"{card}","device_ip":"{}","rank_id":"{card}"}}"#, address(card))
        };
        let devices: Vec<String> = (0..8).map(device).collect();
        self.write(
            "hccl.json",
            &format!(
                r#"{{"status":"completed","version":"1.0","server_count":"1","server_list":[{{"server_id":"10.0.0.1","device":[{}]}}]}}"#,
                devices.join(",")
            ),
        );
        self.arguments.extend(["--rank-table".to_owned(), self.path("hccl.json").display().to_string()]);
    }

    /// Renames an operator in a copy of the libraries.
    fn without_operator(&self, name: &str) {
        let folder = self.path("libraries");
        fs::create_dir(&folder).unwrap();
        let symbol = format!("\0{name}GetWorkspaceSize\0").into_bytes();
        let mut renamed = symbol.clone();
        renamed[5] = b'_';
        for entry in fs::read_dir(libraries()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                continue;
            }
            let mut bytes = fs::read(&path).unwrap();
            while let Some(at) = bytes.windows(symbol.len()).position(|window| window == symbol) {
                bytes[at..at + symbol.len()].copy_from_slice(&renamed);
            }
            fs::write(folder.join(path.file_name().unwrap()), bytes).unwrap();
        }
        fs::remove_file(self.path(&format!("{TOOLKIT}/lib64"))).unwrap();
        symlink(&folder, self.path(&format!("{TOOLKIT}/lib64"))).unwrap();
    }

    fn examine(&self, arguments: &[&str]) -> (Output, Value) {
        let tools = std::env::var("PATH").unwrap();
        let mut command = command();
        // Cargo's library path contains the drop-in libraries, which would supply missing
        // functions.
        for name in [
            "ASCEND_TOOLKIT_HOME",
            "ASCEND_HOME_PATH",
            "ASCEND_RT_VISIBLE_DEVICES",
            "RANK_TABLE_FILE",
            "LD_LIBRARY_PATH",
        ] {
            command.env_remove(name);
        }
        let ended = command
            .env("PATH", format!("{}:{tools}", self.path("tools").display()))
            .env("HOME", self.path("home"))
            .env("ASCEND_EMULATOR", "cann=8.1,quiet,private")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .args(["doctor", "--json", "--root"])
            .arg(self.folder.path())
            .args(arguments)
            .args(&self.arguments)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&ended.stdout);
        let report = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&ended.stderr)));
        (ended, report)
    }
}

fn findings(report: &Value) -> Vec<&Value> {
    report["lines"].as_array().unwrap().iter().filter(|line| line["verdict"] == "finding").collect()
}

#[test]
fn a_host_in_which_all_is_well_has_no_finding() {
    let mut host = Host::new();
    host.rank_table("10.1.0.3");
    let (ended, report) = host.examine(&[]);
    assert_eq!((ended.status.code(), findings(&report)), (Some(0), Vec::new()));
    for group in
        ["host", "driver", "toolkit", "links", "cards", "operators", "collectives", "capture", "kernels"]
    {
        assert!(
            report["lines"].as_array().unwrap().iter().any(|line| line["group"] == group),
            "{group}: {report:#}"
        );
    }
}

/// Name, setup, subject and words of the finding.
type Fault = (&'static str, fn(&mut Host), &'static str, &'static [&'static str]);

const FAULTS: [Fault; 16] = [
    (
        "the caller is not in the driver's group",
        |host| host.replace("proc/self/status", " 1001", ""),
        "rights",
        &["HwHiAiUser", "usermod"],
    ),
    (
        "the shared memory of a container",
        |host| host.replace("proc/mounts", "16777216k", "65536k"),
        "/dev/shm",
        &["64", "--shm-size"],
    ),
    (
        "a card is gone",
        |host| fs::remove_file(host.path("dev/davinci3")).unwrap(),
        "cards",
        &["0, 1, 2, 4, 5, 6, 7", "8, as npu-smi counts"],
    ),
    (
        "a tool hangs",
        |host| host.tool("npu-smi", "#!/bin/sh\nexec sleep 600\n"),
        "npu-smi",
        &["no answer in 5 s", "dmesg"],
    ),
    (
        "a card is ill",
        |host| {
            host.tool(
                "npu-smi",
                &NPU_SMI
                    .replace("*) printf", "*) [ \"$5\" = 5 ] && printf 'Health Status : Alarm\\n' || printf"),
            );
        },
        "card 5",
        &["Alarm", "reset"],
    ),
    ("no driver", |host| fs::remove_file(host.path(DRIVER)).unwrap(), "driver", &["version.info", "mount"]),
    (
        "a driver that the toolkit does not know",
        |host| {
            host.replace(DRIVER, "V100R001C21SPC002B220", "V100R001C13SPC002B220");
            host.replace(DRIVER, ",[V100R001C21]", "");
        },
        "driver and toolkit",
        &["V100R001C13", "V100R001C21", "release notes"],
    ),
    (
        "a toolkit that is gone",
        |host| {
            let gone = host.path("opt/cann-8.0").display().to_string();
            host.variables.push(("ASCEND_TOOLKIT_HOME", gone));
        },
        "ASCEND_TOOLKIT_HOME",
        &["cann-8.0", "no such folder", "set_env.sh"],
    ),
    (
        "libraries of another toolkit",
        |host| host.variables.push(("ASCEND_EMULATOR", "cann=9.0,quiet,private".to_owned())),
        "version by its libraries",
        &["9.0", "8.1.RC1, as its files say", "LD_LIBRARY_PATH"],
    ),
    (
        "a toolkit without an operator",
        |host| host.without_operator("aclnnRmsNorm"),
        "aclnnRmsNorm",
        &["generate --dtype bf16", "train", "everything else runs"],
    ),
    (
        "a toolkit for another processor",
        |host| {
            let path = format!("{TOOLKIT}/{}-linux/ascend_toolkit_install.info", std::env::consts::ARCH);
            host.replace(&path, &format!("arch={}", std::env::consts::ARCH), "arch=riscv64");
        },
        "processor of the toolkit",
        &["riscv64", std::env::consts::ARCH],
    ),
    (
        "a link is down",
        |host| {
            host.tool(
                "hccn_tool",
                &HCCN_TOOL.replace("link status: UP", "link status: $([ $2 = 6 ] && echo DOWN || echo UP)"),
            );
        },
        "link of card 6",
        &["DOWN", "cable"],
    ),
    (
        "encryption on one card alone",
        |host| {
            host.tool(
                "hccn_tool",
                &HCCN_TOOL.replace("switch[0]", "switch[$([ $2 = 2 ] && echo 1 || echo 0)]"),
            );
        },
        "TLS switch",
        &["card 2 only", "EI0006"],
    ),
    (
        "a rank table with a wrong address",
        |host| host.rank_table("10.1.0.33"),
        "rank table",
        &["10.1.0.33 of card 3", "10.1.0.3, the address of the card"],
    ),
    (
        "a rank table that is not complete",
        |host| {
            host.rank_table("10.1.0.3");
            host.replace("hccl.json", "completed", "initializing");
        },
        "rank table",
        &["initializing", "wait"],
    ),
    (
        "a card that the host has not",
        |host| host.variables.push(("ASCEND_RT_VISIBLE_DEVICES", "0,1,9".to_owned())),
        "ASCEND_RT_VISIBLE_DEVICES",
        &["no /dev/davinci9", "0, 1, 2"],
    ),
];

#[test]
fn each_fault_is_named_and_nothing_else() {
    for (name, seed, subject, words) in FAULTS {
        let mut host = Host::new();
        seed(&mut host);
        let (ended, report) = host.examine(&["--no-smoke"]);
        let found = findings(&report);
        assert_eq!((ended.status.code(), found.len()), (Some(1), 1), "{name}: {found:#?}");
        let text = found[0].to_string();
        assert!(found[0]["subject"].as_str().unwrap().starts_with(subject), "{name}: {text}");
        for word in words {
            assert!(text.contains(word), "{name}: no `{word}` in {text}");
        }
    }
}

#[test]
fn emulated_cards_are_well() {
    let ended = command().args(["doctor", "--emulator"]).output().unwrap();
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{text}");
    for line in [
        "ok chip: 8 × Ascend910B3",
        "ok aclnnMatmul: bf16 ",
        "on 8 cards: correct sum",
        "ok replay: 3 replays",
    ] {
        assert!(text.contains(line), "no `{line}` in {text}");
    }
}

#[test]
fn kernels_of_a_library_are_held_against_their_meaning() {
    if !kernel::has_compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libkernels.so");
    let names: Vec<&str> = ascend_tp::base::Kernels::ALL.names().collect();
    let sources = names.iter().map(|name| root().join(format!("kernels/{name}.cpp")));
    let built =
        command().args(["kernel", "build"]).args(sources).arg("--out").arg(&library).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    for cards in [1, 2] {
        let mut doctor = command();
        doctor.args(["doctor", "--emulator"]).env("ASCEND_TP_KERNEL_LIBRARY", &library);
        let ended = doctor.env("ASCEND_EMULATOR", format!("cards={cards}")).output().unwrap();
        let text = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success(), "{text}");
        for name in &names {
            // Kernels for several cards need two cards.
            let is_tried = cards == 2 || !["sign_compress", "topk_threshold"].contains(name);
            let told = format!("{} {name}", if is_tried { "ok" } else { "--" });
            assert!(text.contains(&told), "{name} is not told of with {cards} cards: {text}");
        }
        assert_eq!(text.contains("needs several cards"), cards == 1, "{text}");
    }
}

#[test]
fn a_probe_that_dies_is_a_finding_and_wrong_use_is_told() {
    let host = Host::new();
    // An invalid library ends the probe, not the report.
    fs::remove_file(host.path(&format!("{TOOLKIT}/lib64"))).unwrap();
    host.write(&format!("{TOOLKIT}/lib64/libascendcl.so"), "no library");
    let (ended, report) = host.examine(&[]);
    let found = findings(&report);
    assert_eq!(ended.status.code(), Some(1));
    assert!(found[0].to_string().contains("libascendcl.so"), "{found:#?}");
    assert_eq!(command().args(["doctor", "--toolkit", "x"]).output().unwrap().status.code(), Some(2));
}

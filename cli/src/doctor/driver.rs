//! Checks of the driver, its device files, access rights and the health of the cards.

use std::collections::BTreeSet;

use ascend_tp::world::visible_cards;

use super::report::ReportGroup;
use super::system::{System, ToolOutcome, said, tool, variable};

pub(super) const VERSION: &str = "/usr/local/Ascend/driver/version.info";

/// Device files that every card needs.
const SHARED_DEVICES: [&str; 3] = ["davinci_manager", "devmm_svm", "hisi_hdc"];

/// Group with the right to open device files.
const USERS: &str = "HwHiAiUser";

pub(super) fn check(system: &System) -> ReportGroup {
    let mut group = ReportGroup::new("driver");
    match system.entry(VERSION, "Version") {
        Some(version) => group.well("driver", version),
        None => group.finding(
            "driver",
            format!("no {VERSION}"),
            "the version of a driver",
            "install the driver of the cards; in a container mount /usr/local/Ascend/driver of the host",
        ),
    }
    devices(system, &mut group);
    users(system, &mut group);
    visible(system, &mut group);
    health(system, &mut group);
    group
}

fn devices(system: &System, group: &mut ReportGroup) {
    let missing: Vec<&str> =
        SHARED_DEVICES.into_iter().filter(|name| !system.has(&format!("/dev/{name}"))).collect();
    if missing.is_empty() {
        group.well("device files", SHARED_DEVICES.join(", "));
    } else {
        let remedy = "load the driver; in a container pass each file with --device";
        group.finding(
            "device files",
            format!("no /dev/{}", missing.join(", /dev/")),
            SHARED_DEVICES.join(", "),
            remedy,
        );
    }
    let cards = system.cards();
    if cards.is_empty() {
        let remedy = "load the driver; in a container pass each card with --device /dev/davinciN";
        group.finding("cards", "no /dev/davinciN", "one file for each card", remedy);
    } else {
        group.well("cards", list(&cards));
    }
}

/// Checks the right to open device files: root, or a member of the driver's group.
fn users(system: &System, group: &mut ReportGroup) {
    let status = system.read("/proc/self/status").unwrap_or_default();
    let numbers = |key: &str| -> Vec<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        line.split_whitespace().filter_map(|number| number.parse().ok()).collect()
    };
    // The second id is the effective one.
    if numbers("Uid:").get(1) == Some(&0) {
        group.well("rights", "root");
        return;
    }
    let mine: BTreeSet<u32> = numbers("Groups:").into_iter().chain(numbers("Gid:").get(1).copied()).collect();
    let groups = system.read("/etc/group").unwrap_or_default();
    let id = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == USERS).then(|| fields.nth(1)?.parse::<u32>().ok())?
    });
    let remedy = format!(
        "run `usermod -aG {USERS} $USER` as root and log in again; in a container pass --group-add with the id of {USERS}"
    );
    match id {
        Some(id) if mine.contains(&id) => group.well("rights", format!("a member of {USERS}")),
        Some(_) => {
            group.finding(
                "rights",
                format!("not a member of {USERS}"),
                format!("a member of {USERS}, or root"),
                remedy,
            );
        }
        None => group.finding(
            "rights",
            format!("no group {USERS}"),
            "the group that the driver's installer creates",
            remedy,
        ),
    }
}

fn visible(system: &System, group: &mut ReportGroup) {
    const VARIABLE: &str = "ASCEND_RT_VISIBLE_DEVICES";
    let Some(text) = variable(VARIABLE) else { return };
    let cards = system.cards();
    let named = visible_cards(&text);
    let missing: Vec<usize> = named.iter().copied().filter(|card| !cards.contains(card)).collect();
    if missing.is_empty() && named.len() < text.split(',').count() {
        let seen =
            format!("{text}; CANN reads {}", if named.is_empty() { "none".into() } else { list(&named) });
        group.finding(
            VARIABLE,
            seen,
            "numbers in ascending order between commas, such as 0,1,2",
            "correct or unset the variable",
        );
    } else if missing.is_empty() {
        group.well(VARIABLE, text);
    } else {
        let seen = format!("{text}, but there is no /dev/davinci{}", list(&missing));
        group.finding(
            VARIABLE,
            seen,
            format!("some of {}", list(&cards)),
            "select cards of this host, or unset the variable",
        );
    }
}

fn health(system: &System, group: &mut ReportGroup) {
    const TOOL: &str = "npu-smi";
    let counted = match tool(TOOL, &["info", "-l"]) {
        ToolOutcome::Answer(text) => text,
        told => return trouble(group, TOOL, &told),
    };
    let cards = system.cards();
    let total = said(&counted, "Total Count").and_then(|count| count.parse::<usize>().ok());
    if let Some(total) = total.filter(|total| *total > cards.len()) {
        let remedy = "see dmesg for the missing card, or pass it to the container with --device";
        group.finding(
            "cards",
            format!("{} device files: {}", cards.len(), list(&cards)),
            format!("{total}, as {TOOL} counts"),
            remedy,
        );
    }
    for card in cards {
        let subject = format!("card {card}");
        match tool(TOOL, &["info", "-t", "health", "-i", &card.to_string()]) {
            ToolOutcome::Answer(text) => match said(&text, "Health").as_deref() {
                Some("OK") => group.well(subject, "healthy"),
                found => {
                    let remedy = format!(
                        "see `{TOOL} info -t health -i {card}` and the card's log; reset or exclude the card"
                    );
                    group.finding(subject, found.unwrap_or("no health status"), "Health : OK", remedy);
                }
            },
            told => {
                trouble(group, TOOL, &told);
                if told == ToolOutcome::Hung {
                    break;
                }
            }
        }
    }
}

pub(super) fn trouble(group: &mut ReportGroup, name: &str, told: &ToolOutcome) {
    let expected = "an answer within 5 s";
    match told {
        ToolOutcome::Answer(_) => {}
        ToolOutcome::Absent => {
            let remedy =
                "the driver contains this tool: mount it into the container, or add its folder to PATH";
            group.finding(name, "not found on PATH", expected, remedy);
        }
        ToolOutcome::Failed(why) => {
            group.finding(
                name,
                why.as_str(),
                expected,
                "run the tool by hand; it also fails if the driver is not loaded",
            );
        }
        ToolOutcome::Hung => {
            let remedy =
                "a card does not answer the driver: see dmesg, then reset the card or restart the host";
            group.finding(name, "no answer in 5 s", expected, remedy);
        }
    }
}

fn list(numbers: &[usize]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

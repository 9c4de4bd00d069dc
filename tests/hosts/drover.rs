//! Entries of the layout `drover` on a host: the verbs of `memory` over SFTP, their undo, and how much is
//! read to open a collection.

use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::drover_entries::{NOW, entry_path, entry_text, parse_reply, write_entry};
use super::edited_files::read_tree;
use super::odd_entries::{EntryOperation, ODD_ID, ODD_LINES, OddFile, SPECIAL_OBJECTS, odd_files};
use super::remote::engine_with_connector;
use super::remote_site::RemoteSite;
use super::servers::{FilteredServer, ReplyFate, RequestFate, sftp_server};
use super::tree_snapshot::snapshot_tree;
use super::world::World;

/// An agent on a host, and the directory of its entries.
struct RemoteEntries {
    site: RemoteSite,
    root: PathBuf,
}

impl RemoteEntries {
    fn new() -> Option<RemoteEntries> {
        let ssh = sftp_server()?.ssh_script();
        let world = World::new(&[]);
        let root = world.root.join("entries");
        for directory in ["global", "agents/w"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        let lines = format!("layout = drover\nmemory_dir = {}", root.display());
        let site = RemoteSite::new(world, &["ranger"], &lines, &ssh);
        Some(RemoteEntries { site, root })
    }

    fn odd_path(&self) -> PathBuf {
        entry_path(&self.root, "global", ODD_ID)
    }

    fn memory(&self, arguments: &[&str]) -> Output {
        let words = [&["memory", "--now", NOW, "ranger"], arguments].concat();
        self.site.run_program(&words)
    }

    fn json(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        parse_reply(&self.memory(&[arguments, &["--json"]].concat()))
    }
}

/// Asserts what is seen of an odd file over SFTP.
fn assert_shown(entries: &RemoteEntries, odd: &OddFile) {
    let name = odd.name;
    let title = match odd.seen {
        Ok(_) => "odd".to_string(),
        Err(reason) => format!("agents do not see it: {reason}"),
    };
    let (_, tree) = entries.json(&["tree"]);
    let item = &tree["collections"][0]["items"][0];
    assert_eq!(item["title"], title, "{name}");
    assert_eq!(item["bytes"], odd.bytes.len(), "{name}");
    let shown = entries.memory(&["show", ODD_ID]);
    assert!(shown.stdout == odd.bytes, "{name}: {:?}", shown.stderr);
    let (_, found) = entries.json(&["search", "odd"]);
    let found = found["results"].as_array().unwrap().len();
    assert_eq!(found, usize::from(odd.seen.is_ok()), "{name}");
    let (code, health) = entries.json(&["health"]);
    let findings = health["findings"].as_array().unwrap().iter();
    let checks = findings.map(|it| it["check"].as_str().unwrap());
    assert_eq!(checks.collect::<Vec<_>>(), odd.checks, "{name}");
    let is_ill = i32::from(!odd.checks.is_empty());
    assert_eq!(code, Some(is_ill), "{name}");
}

/// Plans an operation on the odd file, applies the plan and undoes it. Returns whether it changes
/// something.
fn apply_and_undo(entries: &RemoteEntries, odd: &OddFile, operation: EntryOperation) -> bool {
    let what = format!("{}, {operation:?}", odd.name);
    let command = operation.command(ODD_ID);
    let (before, tree) = (snapshot_tree(&entries.root), read_tree(&entries.root));
    let (code, plan) = entries.json(&[&["plan"], &command[..]].concat());
    assert!(snapshot_tree(&entries.root) == before, "{what}");
    let expected = i32::from(odd.is_refused(operation));
    assert_eq!(code, Some(expected), "{what}: {plan}");
    if plan["writes"].as_array().is_none_or(Vec::is_empty) {
        return false;
    }
    let hash = plan["plan"].as_str().unwrap();
    let applied = entries.memory(&[&["apply"], &command[..], &["--plan", hash]].concat());
    assert_eq!(applied.status.code(), Some(0), "{what}: {applied:?}");
    let is_changed = read_tree(&entries.root) != tree;
    let undone = entries.site.run_program(&["undo", "ranger"]);
    assert_eq!(undone.status.code(), Some(0), "{what}: {undone:?}");
    assert!(read_tree(&entries.root) == tree, "{what}");
    is_changed
}

#[test]
fn odd_entry_on_a_host_is_shown_and_undone() {
    let sample = ["CRLF", "NUL", "not UTF-8", "10 MB", "BOM", "key twice"];
    let odd_files = odd_files().into_iter();
    for odd in odd_files.filter(|odd| sample.contains(&odd.name)) {
        let Some(entries) = RemoteEntries::new() else {
            return;
        };
        fs::write(entries.odd_path(), &odd.bytes).unwrap();
        let before = snapshot_tree(&entries.root);
        assert_shown(&entries, &odd);
        assert!(snapshot_tree(&entries.root) == before, "{}", odd.name);
        for operation in EntryOperation::ALL {
            let is_changed = apply_and_undo(&entries, &odd, operation);
            let expected = odd.is_changed_by(operation);
            assert_eq!(is_changed, expected, "{}, {operation:?}", odd.name);
        }
    }
}

#[test]
fn special_object_on_a_host_is_left_alone() {
    for (name, make) in SPECIAL_OBJECTS {
        let Some(entries) = RemoteEntries::new() else {
            return;
        };
        let text = entry_text(ODD_ID, ODD_LINES);
        fs::write(entries.root.join("target.md"), text).unwrap();
        make(&entries.odd_path());
        let before = snapshot_tree(&entries.root);
        let (_, tree) = entries.json(&["tree", "global"]);
        assert_eq!(tree["collections"][0]["items"], json!([]), "{name}");
        let [put, to_w, forget] = EntryOperation::ALL.map(|it| it.command(ODD_ID));
        for (verb, expected) in [
            (&["show", ODD_ID][..], 2),
            (&["health"], 1),
            (&[&["apply"], &put[..]].concat(), 1),
            (&[&["apply"], &to_w[..]].concat(), 1),
            (&[&["apply"], &forget[..]].concat(), 0),
        ] {
            let ran = entries.memory(verb);
            assert_eq!(
                ran.status.code(),
                Some(expected),
                "{name}, {verb:?}: {ran:?}"
            );
        }
        assert_eq!(snapshot_tree(&entries.root), before, "{name}");
    }
}

/// Number of entries of a large collection.
const MANY: usize = 10_000;

/// Requests to a host, and bytes of its replies.
#[derive(Default)]
struct Traffic {
    requests: AtomicUsize,
    bytes: AtomicUsize,
}

impl Traffic {
    fn take(&self) -> [usize; 2] {
        [&self.requests, &self.bytes].map(|count| count.swap(0, Ordering::SeqCst))
    }
}

#[test]
fn first_page_of_many_entries_is_read_alone() {
    let Some(server) = sftp_server() else { return };
    let mut world = World::new(&["ranger"]);
    let root = world.root.join("entries");
    let lines = format!(
        "remote_host = box\nremote_memory = {}\nlayout = drover\nmemory_dir = {}",
        world.memory_path("ranger").display(),
        root.display()
    );
    world.add_agent("ranger", &lines);
    for number in 0..MANY {
        let id = format!("01HF7YAT00AAAAAAAAAAA{number:05}");
        let text = entry_text(&id, ODD_LINES).replace("a reason", &"reason ".repeat(400));
        write_entry(&root, "global", &id, text);
    }
    let traffic = Arc::new(Traffic::default());
    let (asked, answered) = (Arc::clone(&traffic), Arc::clone(&traffic));
    let server = FilteredServer::new(
        server,
        Arc::new(move |_, _| {
            asked.requests.fetch_add(1, Ordering::SeqCst);
            RequestFate::Pass
        }),
    );
    let server = server.with_reply_filter(Arc::new(move |_, frame| {
        answered.bytes.fetch_add(frame.len(), Ordering::SeqCst);
        ReplyFate::Pass
    }));
    let engine = engine_with_connector(&world, server);
    let memory = engine.layouts().open("ranger").unwrap();
    let collections = memory.collections().unwrap();
    assert_eq!(collections[0].id, "global");
    let opening = traffic.take();
    let mut pages = memory.layout.items(&memory.files, "global").unwrap();
    let first = pages.next().unwrap().unwrap().len();
    let first_page = traffic.take();
    let all = first + pages.map(|page| page.unwrap().len()).sum::<usize>();
    assert_eq!(all, MANY);
    let other_pages = traffic.take();
    println!("requests and bytes: {opening:?}, {first_page:?}, {other_pages:?}");
    for ((opening, first_page), other_pages) in opening.into_iter().zip(first_page).zip(other_pages)
    {
        assert!(0 < opening && opening < first_page);
        assert!(10 * (opening + first_page) < other_pages);
    }
}

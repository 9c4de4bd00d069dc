//! Runs that compact the ledger: killed at every call of that, and cut off from power.

use std::fs::{self, File};
use std::io::{BufWriter, Write};

use memory_shepherd::base::clock::{Clock, SystemClock};
use memory_shepherd::base::digest::Digest;
use serde_json::{Value, json};

use super::crash::{KillSweep, assert_no_failures, is_killed, kill};
use super::faults::{is_output, possible_errors};
use super::fixture::{BASELINE, segment_names};
use super::scene::{CheckResult, InitialMemory, RESET_ALL, Scene, assert_ok, check, output_text};
use super::strace::{self, SystemCall, can_trace, injection_options, sample_if_quick};

/// Notes of the run that is in a segment after the compaction.
const EARLY_NOTES: &str = "- early\n";

/// Bytes of records behind that run: so many that the next run compacts the ledger.
const FILLER_BYTES: usize = 1_150_000;

/// A scene whose next run compacts the ledger, behind an earlier run of its agent.
fn scene_with_long_ledger() -> Scene {
    let scene = Scene::new(&[("scout", InitialMemory::scratch("- note\n"))]);
    lengthen_ledger(&scene);
    scene
}

/// Resets the agents, and appends the records of later runs of another agent.
pub fn lengthen_ledger(scene: &Scene) {
    scene.reset_once_before(EARLY_NOTES);
    let path = scene.fleet.archive.join(".shepherd/ledger.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let mut previous = Digest::of(text.lines().last().unwrap().as_bytes());
    let mut seq = text.lines().count();
    let mut file = BufWriter::new(File::options().append(true).open(&path).unwrap());
    let mut written = 0;
    while written < FILLER_BYTES {
        seq += 1;
        let record = json!({
            "seq": seq, "prev": previous, "time": SystemClock.now(), "run": format!("{seq:08x}"),
            "act": "reset", "trigger": "timer", "user": "timer", "agent": "other",
            "host": "local", "outcome": "unchanged", "note": format!("{seq} ").repeat(400),
        });
        let line = record.to_string();
        previous = Digest::of(line.as_bytes());
        writeln!(file, "{line}").unwrap();
        written += line.len() + 1;
    }
    file.flush().unwrap();
}

/// Checks the disk after a failed compaction: immediately, after the next runs, and after undos of the
/// run that failed and of one that is in a segment.
pub fn check_compaction(scene: &Scene) -> CheckResult {
    let runs = |scene: &Scene| -> Vec<Value> {
        let records = scene.records().into_iter();
        records.map(|record| record["run"].clone()).collect()
    };
    let before = runs(scene);
    check(before.len() > FILLER_BYTES / 4_000, || {
        format!("only {} records are left", before.len())
    })?;
    check_commands(scene).map_err(|why| format!("immediately: {why}"))?;
    scene.check_all()?;
    check_commands(scene).map_err(|why| format!("after the next run: {why}"))?;
    let after = runs(scene);
    check(after.starts_with(&before), || {
        "the ledger has lost records".to_string()
    })?;
    let own = scene.fleet.archive.join(".shepherd");
    let length = fs::metadata(own.join("ledger.jsonl")).unwrap().len();
    check(!segment_names(&own).is_empty() && length < 1 << 20, || {
        format!("not compacted: {:?}, {length} bytes", segment_names(&own))
    })?;
    let first = before[0].as_str().unwrap();
    let output = scene.fleet.run(&["undo", "--run", first, "--overwrite"]);
    check(output.status.code() == Some(0), || output_text(&output))?;
    let stands = scene.read_memory("scout").unwrap_or_default();
    check(
        stands == format!("{BASELINE}{EARLY_NOTES}").as_bytes(),
        || "the undo of the first run did not restore its memory".to_string(),
    )?;
    check_commands(scene).map_err(|why| format!("after undos: {why}"))
}

/// Checks that the commands that read the whole ledger succeed.
fn check_commands(scene: &Scene) -> CheckResult {
    for words in [
        &["verify"][..],
        &["log", "scout"],
        &["log", "-n", "900"],
        &["status"],
    ] {
        let output = scene.fleet.run(words);
        check(output.status.code() == Some(0), || {
            format!("{words:?}: {}", output_text(&output))
        })?;
    }
    Ok(())
}

/// Whether a call removes the transaction record of a turn, whose ledger record is on the disk by then.
fn is_journal_removal(call: &SystemCall) -> bool {
    call.name.starts_with("unlink") && call.text.contains(".json\"")
}

/// Returns the calls of an undisturbed run that change something, from its ledger record on.
fn compacting_calls(scene: &Scene) -> Vec<SystemCall> {
    let all_calls = strace::record_changing_calls(scene, RESET_ALL);
    let begin = all_calls.iter().rposition(is_journal_removal).unwrap();
    let calls = all_calls[begin..].to_vec();
    let names = |name: &str| calls.iter().filter(|call| call.name == name).count();
    assert!(names("linkat") >= 2 && names("fsync") >= 4, "{calls:#?}");
    calls
}

#[test]
fn kill_at_any_call_of_compaction_loses_nothing() {
    if !can_trace() {
        return;
    }
    let points = compacting_calls(&scene_with_long_ledger());
    KillSweep {
        name: "compaction of the ledger",
        scene: &scene_with_long_ledger,
        run: &|_| RESET_ALL.iter().map(ToString::to_string).collect(),
        check_recovery: &check_compaction,
        quick_points: 8,
    }
    .kill_at_points(&points);
}

#[test]
fn error_at_any_call_of_compaction_loses_nothing() {
    if !can_trace() {
        return;
    }
    let scene = scene_with_long_ledger();
    let (output, calls) = strace::record_calls(&scene.fleet, &scene.trace_log, RESET_ALL);
    assert_ok(&output);
    let begin = calls.iter().rposition(is_journal_removal).unwrap();
    let errors = |call: &SystemCall| {
        let errors = possible_errors(call).iter();
        let call = call.clone();
        errors
            .map(move |error| (call.clone(), *error))
            .collect::<Vec<_>>()
    };
    let calls = calls[begin + 1..].iter().filter(|call| !is_output(call));
    let pairs: Vec<(SystemCall, &str)> = calls.flat_map(errors).collect();
    let chosen = sample_if_quick(&pairs, 12);
    let (mut failures, mut noted) = (Vec::new(), 0);
    for (call, error) in &chosen {
        let scene = scene_with_long_ledger();
        let what = format!("error={error}");
        let options = injection_options(&call.name, &what, call.occurrence, false);
        let output = strace::run_traced(&scene.fleet, &scene.trace_log, &options, RESET_ALL);
        let said = output_text(&output);
        noted += usize::from(said.contains("the ledger is not compacted: "));
        let is_reset = scene.read_memory("scout").as_deref() == Some(BASELINE.as_bytes());
        let result = check(is_reset && said.contains("ended: 1 ok"), || said.clone())
            .and_then(|()| check(!said.contains("panicked"), || said.clone()))
            .and_then(|()| check_compaction(&scene));
        if let Err(why) = result {
            failures.push(format!("{error} at {}: {why}", call.text));
        }
    }
    println!(
        "errors in a compaction: {} of {}, {noted} of them noted",
        chosen.len(),
        pairs.len()
    );
    assert_no_failures("errors in a compaction", &failures);
    assert!(
        noted > 0,
        "no run notes that it could not compact the ledger"
    );
}

/// Returns what a traced call syncs or names: a file without a name, a directory, or the new name.
fn flush_step(line: &str) -> Option<String> {
    let (_, text) = line.split_once(' ')?;
    let text = text.trim_start();
    let name = text.split('(').next()?;
    let last_word = || text.rsplit('"').nth(1).map(str::to_string);
    match name {
        "fsync" | "fdatasync" => {
            let path = text.split_once('<')?.1.split_once('>')?.0;
            let is_nameless = path.rsplit('/').next()?.starts_with('#');
            let what = if is_nameless { "a new file" } else { path };
            Some(format!("sync {what}"))
        }
        "linkat" | "renameat" | "renameat2" => Some(format!("name {}", last_word()?)),
        _ => None,
    }
}

#[test]
fn compaction_flushes_in_documented_order() {
    if !can_trace() {
        return;
    }
    let scene = scene_with_long_ledger();
    let trace = "trace=fsync,fdatasync,linkat,renameat,renameat2";
    let options = ["-y", "-e", trace].map(ToString::to_string);
    let output = strace::run_traced(&scene.fleet, &scene.trace_log, &options, RESET_ALL);
    assert_ok(&output);
    let log = fs::read_to_string(&scene.trace_log).unwrap();
    let own = scene.fleet.archive.join(".shepherd");
    let logged_steps: Vec<String> = log.lines().filter_map(flush_step).collect();
    let segment = segment_names(&own).pop().unwrap();
    let named = logged_steps
        .iter()
        .position(|step| *step == format!("name {segment}"));
    let directory = format!("sync {}", own.display());
    let steps: Vec<&str> = logged_steps[named.unwrap() - 1..]
        .iter()
        .map(String::as_str)
        .collect();
    let [new, name, synced, ref replaced @ ..] = steps[..] else {
        panic!("{steps:#?}")
    };
    assert_eq!(
        (new, name),
        ("sync a new file", &*format!("name {segment}"))
    );
    assert_eq!(
        synced, directory,
        "before the records leave the active file"
    );
    // The id of the archive is on the disk before the first record leaves the active file.
    for (file, steps) in ["archive-id", "ledger.jsonl"]
        .iter()
        .zip(replaced.chunks(4))
    {
        let [new, random, renamed, synced] = steps else {
            panic!("{steps:#?}")
        };
        assert_eq!(*new, "sync a new file");
        assert!(random.starts_with("name .shepherd-"), "{random}");
        assert_eq!((*renamed, *synced), (&*format!("name {file}"), &*directory));
    }
    assert!(replaced.len() >= 8, "{replaced:#?}");
}

/// A run whose compaction is killed between the rename and the sync of the directory: the next append
/// relies on the new file, whose name has to be on the disk before it returns.
#[test]
fn name_of_replaced_ledger_is_synced_before_reuse() {
    if !can_trace() {
        return;
    }
    let calls = compacting_calls(&scene_with_long_ledger());
    let is_rename = |call: &&SystemCall| {
        call.name.starts_with("rename") && call.text.contains("ledger.jsonl\"")
    };
    let rename = calls.iter().position(|call| is_rename(&call)).unwrap();
    let sync = calls[rename..].iter().find(|call| call.name == "fsync");
    let scene = scene_with_long_ledger();
    assert!(is_killed(&kill(&scene, sync.unwrap(), RESET_ALL)));
    let own = scene.fleet.archive.join(".shepherd");
    let ledger = own.join("ledger.jsonl");
    assert!(
        fs::metadata(&ledger).unwrap().len() < 1 << 20,
        "it was replaced"
    );
    drop(scene.fleet.append_note("scout", "- more\n"));
    let directory_syncs = || {
        let options = ["-y", "-e", "trace=fsync,fdatasync"].map(ToString::to_string);
        let output = strace::run_traced(&scene.fleet, &scene.trace_log, &options, RESET_ALL);
        assert_ok(&output);
        let log = fs::read_to_string(&scene.trace_log).unwrap();
        let append = log.find(&format!("{}>", ledger.display())).unwrap();
        let syncs = log[append..].lines();
        let of_directory = format!("{}>", own.display());
        syncs.filter(|line| line.contains(&of_directory)).count()
    };
    let first = directory_syncs();
    assert!(first >= 1, "the directory is not synced after the append");
}

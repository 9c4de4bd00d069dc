//! Signed seals, both ways with `ssh-keygen -Y`.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crossbeam_channel::unbounded;
use memory_shepherd::base::clock::Clock;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::{ErrorKind, Result};
use memory_shepherd::baseline::signatures::SigningKey;
use memory_shepherd::engine::{
    BaselineState, FleetEvent, FleetWatcher, SealReport, SealScope, State,
};

use crate::fixture::Site;
use crate::skip::skip_missing_tool;
use crate::world::World;

/// Returns whether `ssh-keygen` can be run.
pub fn has_ssh_keygen() -> bool {
    let found = Command::new("ssh-keygen")
        .arg("-?")
        .stderr(Stdio::null())
        .status();
    if found.is_err() {
        skip_missing_tool("ssh-keygen");
    }
    found.is_ok()
}

/// A world of one agent whose config requires a signature by `ops`; also makes a key of `eve`.
pub fn signed_world() -> World {
    let world = World::new(&["scout"])
        .with_general("require_seal = signed")
        .with_general("seal_signers = signers");
    for name in ["ops", "eve"] {
        make_key(&world.root.join(name));
    }
    allow(&world, "namespaces=\"memory-shepherd\"");
    world
}

/// Makes a key without a passphrase.
pub fn make_key(path: &Path) {
    run_ssh_keygen(&[
        "-q",
        "-t",
        "ed25519",
        "-N",
        "",
        "-C",
        "",
        "-f",
        path.to_str().unwrap(),
    ]);
}

fn run_ssh_keygen(arguments: &[&str]) -> Output {
    let output = Command::new("ssh-keygen")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

/// Writes the allowed-signers file with the key of `ops` and these options.
pub fn allow(world: &World, options: &str) {
    let key = fs::read_to_string(world.root.join("ops.pub")).unwrap();
    let line = format!("ops@example.org {options} {key}");
    fs::write(world.root.join("signers"), line).unwrap();
}

pub fn sign(world: &World, key: &str, lifetime_days: Option<u32>) -> Result<SealReport> {
    let engine = world.engine();
    let plan = engine.seals().plan_seal(&SealScope::All, true)?;
    let path = world.root.join(key);
    let key = SigningKey {
        path: &path,
        lifetime_days,
    };
    engine.seals().apply_seal(&plan, Some(&key))
}

/// Returns why the baseline of `scout` is refused, if it is.
pub fn refusal(world: &World) -> Option<String> {
    let engine = world.engine();
    let (_, error) = engine.baselines().refused_baselines().pop()?;
    assert_eq!(error.kind(), ErrorKind::Integrity);
    assert!(!error.hints().is_empty());
    Some(error.to_string())
}

#[track_caller]
fn assert_refused(world: &World, words: &str) {
    let why = refusal(world).expect("the baseline is accepted");
    assert!(why.contains(words), "{why}");
}

pub fn seal_file(world: &World, name: &str) -> PathBuf {
    world.root.join("baselines").join(name)
}

/// Copies the files of the seal and the baseline.
pub fn copy_baselines(world: &World) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(world.root.join("baselines")).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    paths
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

pub fn put_back(files: &[(PathBuf, Vec<u8>)]) {
    for (path, bytes) in files {
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn second_seal_with_one_serial_is_refused() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    sign(&world, "ops", None).unwrap();
    let baselines = copy_baselines(&world);
    let memory = ["seal-serials.json", "seal.json"].map(|name| {
        let path = world.archive_directory().join(".shepherd").join(name);
        let bytes = fs::read(&path).unwrap();
        (path, bytes)
    });
    // Two operators sign what follows the same seal, each with an archive of their own.
    let sign_next = || {
        put_back(&baselines);
        put_back(&memory);
        world.clock.sleep(Duration::from_secs(60));
        let serial = sign(&world, "ops", None).unwrap().meta.unwrap().serial;
        (serial, copy_baselines(&world))
    };
    let (first, second) = (sign_next(), sign_next());
    assert_eq!((first.0, second.0), (2, 2));
    assert_eq!(refusal(&world), None);
    put_back(&first.1);
    assert_refused(
        &world,
        "another one than the first that was seen with its serial 2",
    );
    put_back(&second.1);
    assert_eq!(refusal(&world), None);
    assert_eq!(sign(&world, "ops", None).unwrap().meta.unwrap().serial, 3);
}

#[test]
fn our_signature_passes_ssh_keygen() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    let report = sign(&world, "ops", None).unwrap();
    assert_eq!(report.meta.unwrap().serial, 1);
    assert_eq!(report.signed.unwrap().signer.principal, "ops@example.org");
    let manifest = fs::File::open(seal_file(&world, ".checksums")).unwrap();
    let verified = Command::new("ssh-keygen")
        .args([
            "-Y",
            "verify",
            "-n",
            "memory-shepherd",
            "-I",
            "ops@example.org",
        ])
        .arg("-f")
        .arg(world.root.join("signers"))
        .arg("-s")
        .arg(seal_file(&world, ".checksums.sig"))
        .stdin(manifest)
        .output()
        .unwrap();
    assert!(verified.status.success(), "{verified:?}");
    assert_eq!(refusal(&world), None);
    world.reset().assert_ok();
    let found = world
        .engine()
        .verifier()
        .verify(None, &AtomicBool::new(false), &mut |_| {})
        .unwrap();
    assert_eq!(
        (found.findings.len(), found.signed.unwrap().meta.serial),
        (0, 1)
    );
}

#[test]
fn signature_of_ssh_keygen_is_accepted() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    let meta = "{\"serial\": 41, \"time\": \"2026-03-14T09:00:00+01:00\"}\n";
    fs::write(seal_file(&world, ".checksums.meta"), meta).unwrap();
    world.write_seal();
    let manifest = seal_file(&world, ".checksums");
    let line = format!("{}  .checksums.meta\n", Digest::of(meta.as_bytes()));
    let text = fs::read_to_string(&manifest).unwrap() + &line;
    fs::write(&manifest, text).unwrap();
    let key = world.root.join("ops");
    let arguments = ["-q", "-Y", "sign", "-n", "memory-shepherd", "-f"];
    let arguments = [
        &arguments[..],
        &[key.to_str().unwrap(), manifest.to_str().unwrap()],
    ];
    run_ssh_keygen(&arguments.concat());
    assert_eq!(refusal(&world), None);
    assert_eq!(sign(&world, "ops", None).unwrap().meta.unwrap().serial, 42);
    assert_eq!(refusal(&world), None);
}

#[test]
fn seal_without_good_signature_is_refused() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    assert_refused(&world, "is missing");
    world.write_seal();
    assert_refused(&world, "is not signed");
    sign(&world, "ops", None).unwrap();
    let sound = copy_baselines(&world);
    // Another manifest under the same signature.
    let manifest = fs::read_to_string(seal_file(&world, ".checksums")).unwrap();
    fs::write(seal_file(&world, ".checksums"), manifest.clone() + "\n").unwrap();
    assert_refused(&world, "is not good");
    // A signature of a key that is not allowed, and one that is no signature.
    fs::write(seal_file(&world, ".checksums"), &manifest).unwrap();
    let eve = world.root.join("eve");
    let copy = world.root.join("copy");
    fs::write(&copy, &manifest).unwrap();
    let arguments = ["-q", "-Y", "sign", "-n", "memory-shepherd", "-f"];
    let arguments = [
        &arguments[..],
        &[eve.to_str().unwrap(), copy.to_str().unwrap()],
    ];
    run_ssh_keygen(&arguments.concat());
    fs::copy(
        world.root.join("copy.sig"),
        seal_file(&world, ".checksums.sig"),
    )
    .unwrap();
    assert_refused(&world, "does not allow that key");
    fs::write(seal_file(&world, ".checksums.sig"), "\u{1b}[31m nonsense").unwrap();
    assert_refused(&world, "is not good");
    // Serial and expiry are covered by the signature.
    put_back(&sound);
    fs::write(seal_file(&world, ".checksums.meta"), "{\"serial\": 9}").unwrap();
    assert_refused(&world, "does not cover its .checksums.meta");
    fs::remove_file(seal_file(&world, ".checksums.meta")).unwrap();
    assert_refused(&world, "has no serial");
    put_back(&sound);
    assert_eq!(refusal(&world), None);
    let site_error = world.reset();
    site_error.assert_ok();
}

#[test]
fn allowed_signers_semantics_hold() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    sign(&world, "ops", None).unwrap();
    for (options, is_accepted) in [
        ("", true),
        ("namespaces=\"git,memory-shepherd\"", true),
        ("namespaces=\"git\"", false),
        ("valid-after=\"20200101\",valid-before=\"29990101\"", true),
        ("valid-before=\"20200101\"", false),
        ("valid-after=\"29990101\"", false),
    ] {
        allow(&world, options);
        assert_eq!(refusal(&world).is_none(), is_accepted, "{options}");
    }
    fs::remove_file(world.root.join("signers")).unwrap();
    assert_refused(&world, "seal_signers");
}

#[test]
fn second_line_of_a_key_counts() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    sign(&world, "ops", None).unwrap();
    let key = fs::read_to_string(world.root.join("ops.pub")).unwrap();
    let ours = format!("ops@ms namespaces=\"memory-shepherd\" {key}");
    let other = format!("alice@git namespaces=\"git\" {key}");
    for lines in [format!("{other}{ours}"), format!("# both\n\n{other}{ours}")] {
        fs::write(world.root.join("signers"), lines).unwrap();
        assert_eq!(refusal(&world), None);
    }
    fs::write(world.root.join("signers"), &other).unwrap();
    assert!(refusal(&world).is_some());
}

#[test]
fn certificate_of_allowed_authority_is_accepted() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    let authority = world.root.join("authority");
    make_key(&authority);
    let ops = world.root.join("ops.pub");
    let (authority, ops) = (authority.to_str().unwrap(), ops.to_str().unwrap());
    run_ssh_keygen(&[
        "-q",
        "-s",
        authority,
        "-I",
        "id",
        "-n",
        "ops@example.org",
        ops,
    ]);
    let key = fs::read_to_string(format!("{authority}.pub")).unwrap();
    let signers = |pattern: &str| {
        let line = format!("{pattern} cert-authority {key}");
        fs::write(world.root.join("signers"), line).unwrap();
    };
    signers("*@example.org");
    // ssh-keygen signs with a certificate if the agent holds it; the file alone gives the plain key.
    let agent = SshAgent::start(&world.root);
    agent.add(&world.root.join("ops"));
    let report = agent.seal(&world, "ops-cert.pub");
    assert!(report.status.success(), "{report:?}");
    assert_eq!(refusal(&world), None);
    signers("*@example.com");
    assert!(refusal(&world).is_some());
}

#[test]
fn key_in_agent_signs_through_its_pub_file() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    let agent = SshAgent::start(&world.root);
    agent.add(&world.root.join("ops"));
    fs::remove_file(world.root.join("ops")).unwrap();
    let report = agent.seal(&world, "ops.pub");
    assert!(report.status.success(), "{report:?}");
    assert_eq!(refusal(&world), None);
}

/// An ssh-agent, which ends with the value.
struct SshAgent {
    process: std::process::Child,
    socket: PathBuf,
}

impl SshAgent {
    fn start(root: &Path) -> SshAgent {
        let socket = root.join("agent");
        let process = Command::new("ssh-agent")
            .args(["-D", "-a"])
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // The socket exists a moment before the agent listens on it.
        let end = Instant::now() + Duration::from_secs(30);
        while UnixStream::connect(&socket).is_err() {
            assert!(Instant::now() < end, "ssh-agent does not listen");
            std::thread::yield_now();
        }
        SshAgent { process, socket }
    }

    fn add(&self, key: &Path) {
        let added = Command::new("ssh-add")
            .arg("-q")
            .arg(key)
            .env("SSH_AUTH_SOCK", &self.socket)
            .output()
            .unwrap();
        assert!(added.status.success(), "{added:?}");
    }

    /// Seals a world by the program, with this public key.
    fn seal(&self, world: &World, key: &str) -> Output {
        let _ = world.config();
        Command::new(crate::fixture::PROGRAM_PATH)
            .args(["seal", "--all", "--sign", key])
            .current_dir(&world.root)
            .env("SSH_AUTH_SOCK", &self.socket)
            .env_remove("MEMORY_SHEPHERD_CONF")
            .arg("--config")
            .arg(world.root.join("memory-shepherd.conf"))
            .output()
            .unwrap()
    }
}

impl Drop for SshAgent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn replayed_seal_is_refused() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    sign(&world, "ops", None).unwrap();
    let old = copy_baselines(&world);
    assert_eq!(refusal(&world), None);
    world.set_baseline("scout", "# Stricter rules\n\n- be careful\n\n---\n");
    assert_eq!(sign(&world, "ops", None).unwrap().meta.unwrap().serial, 2);
    let new = copy_baselines(&world);
    // Until the new seal is seen, nothing tells that the old one is old.
    assert_eq!(refusal(&world), None);
    put_back(&old);
    assert_refused(&world, "its serial is 1, and serial 2 was seen before");
    // A second key does not help.
    let ops = fs::read_to_string(world.root.join("ops.pub")).unwrap();
    let eve = fs::read_to_string(world.root.join("eve.pub")).unwrap();
    fs::write(world.root.join("signers"), format!("ops {ops}eve {eve}")).unwrap();
    assert_eq!(sign(&world, "eve", None).unwrap().meta.unwrap().serial, 3);
    assert_eq!(refusal(&world), None);
    put_back(&new);
    assert_refused(&world, "its serial is 2, and serial 3 was seen before");
}

#[test]
fn seal_of_another_fleet_is_refused() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world().with_general("fleet_name = prod");
    sign(&world, "ops", None).unwrap();
    assert_eq!(refusal(&world), None);
    let world = world.with_general("fleet_name = staging");
    assert_refused(&world, "is that of the fleet prod");
    let plan = world
        .engine()
        .seals()
        .plan_seal(&SealScope::All, true)
        .unwrap();
    assert!(plan.problem.is_some() && plan.selected().count() == 1);
}

#[test]
fn expired_seal_is_refused() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    sign(&world, "ops", Some(2)).unwrap();
    let verified = world
        .engine()
        .verifier()
        .verify(None, &AtomicBool::new(false), &mut |_| {})
        .unwrap();
    assert!(
        verified
            .notes
            .iter()
            .any(|note| note.contains("the seal expires at"))
    );
    world.clock.advance(Duration::from_secs(2 * 86_400 - 60));
    assert_eq!(refusal(&world), None);
    world.clock.advance(Duration::from_secs(120));
    assert_refused(&world, "has expired");
    assert_eq!(
        world
            .engine()
            .verifier()
            .verify(None, &AtomicBool::new(false), &mut |_| {})
            .unwrap()
            .worst_kind(),
        Some(ErrorKind::Integrity)
    );
}

#[test]
fn watch_observes_that_a_seal_expires() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    world.write_scratch("scout", "");
    // Long after the last change of a file.
    world.clock.advance(Duration::from_secs(100 * 365 * 86_400));
    sign(&world, "ops", Some(2)).unwrap();
    let (sender, events) = unbounded();
    let fleet = FleetWatcher::start(Arc::clone(world.engine().watch()), sender).unwrap();
    let state_after = |seconds| {
        world.clock.advance(Duration::from_secs(seconds));
        // Wakes the watch: its sweep is due.
        fleet.request_read(Vec::new());
        assert!(fleet.wait_idle(Duration::from_secs(60)));
        let seen = events.try_iter().filter_map(|event| match event {
            FleetEvent::Observed(seen) => Some(seen[0].state),
            _ => None,
        });
        seen.last()
    };
    assert_eq!(state_after(0), Some(State::Clean));
    // After so long each memory is read again.
    assert_eq!(state_after(2 * 86_400 - 60), Some(State::Clean));
    let mut seen = None;
    for _ in 0..5 {
        seen = seen.or(state_after(120));
    }
    assert_eq!(seen, Some(State::Tampered));
}

#[test]
fn expired_seal_outdates_the_one_before_it() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    sign(&world, "ops", None).unwrap();
    let earlier = copy_baselines(&world);
    world.set_baseline("scout", "# Other rules\n\n---\n");
    sign(&world, "ops", Some(1)).unwrap();
    // Another machine signed it: this one sees it for the first time when it has expired.
    for name in ["seal-serials.json", "seal.json"] {
        fs::remove_file(world.root.join("archives/.shepherd").join(name)).unwrap();
    }
    world.clock.advance(Duration::from_secs(2 * 86_400));
    assert_refused(&world, "has expired");
    put_back(&earlier);
    assert_refused(&world, "serial");
}

#[test]
fn first_signature_needs_all_lines_accepted() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    world.write_seal();
    let engine = world.engine();
    let path = world.root.join("ops");
    let key = SigningKey {
        path: &path,
        lifetime_days: None,
    };
    let scope = SealScope::Named(["scout.md".to_string()].into());
    let plan = engine.seals().plan_seal(&scope, true).unwrap();
    let error = engine.seals().apply_seal(&plan, Some(&key)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(!seal_file(&world, ".checksums.sig").exists());
    // Once a good signature covers the other lines, one file is enough.
    sign(&world, "ops", None).unwrap();
    world.set_baseline("scout", "# Other rules\n\n---\n");
    let plan = engine.seals().plan_seal(&scope, true).unwrap();
    engine.seals().apply_seal(&plan, Some(&key)).unwrap();
    assert_eq!(refusal(&world), None);
}

#[test]
fn first_signature_covers_only_named_files() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    let engine = world.engine();
    let path = world.root.join("ops");
    let key = SigningKey {
        path: &path,
        lifetime_days: None,
    };
    let scope = SealScope::Named(["scout.md".to_string()].into());
    let plan = engine.seals().plan_seal(&scope, true).unwrap();
    engine.seals().apply_seal(&plan, Some(&key)).unwrap();
    assert_eq!(refusal(&world), None);
}

#[test]
fn signed_seal_is_not_replaced_by_an_unsigned_one() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    sign(&world, "ops", None).unwrap();
    let before = copy_baselines(&world);
    world.set_baseline("scout", "# Other rules\n\n---\n");
    for requirement in ["signed", "if-present"] {
        let world_engine = world.engine();
        let plan = world_engine
            .seals()
            .plan_seal(&SealScope::All, false)
            .unwrap();
        let error = world_engine.seals().apply_seal(&plan, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{requirement}");
    }
    let (_, manifest) = before
        .iter()
        .find(|(path, _)| path.ends_with(".checksums"))
        .unwrap();
    assert_eq!(
        fs::read(seal_file(&world, ".checksums")).unwrap(),
        *manifest
    );
}

#[test]
fn key_outside_of_signers_changes_nothing() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    let error = sign(&world, "eve", None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity);
    assert!(!seal_file(&world, ".checksums").exists());
    let error = sign(&world, "no such key", None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::User);
}

#[test]
fn key_with_passphrase_is_refused_without_prompt() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    let path = world.root.join("locked");
    let path = path.to_str().unwrap();
    run_ssh_keygen(&["-q", "-t", "ed25519", "-N", "secret", "-C", "", "-f", path]);
    let error = sign(&world, "locked", None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::User);
    assert!(error.hints()[0].contains("ssh-add"), "{error}");
    let message = error.message();
    assert!(message.contains("incorrect passphrase"), "{message}");
    assert!(
        !message.contains("Enter passphrase"),
        "no prompt: {message}"
    );
    // A key that does not exist needs no ssh-agent.
    let error = sign(&world, "nobody", None).unwrap_err();
    assert!(!error.hints()[0].contains("ssh-add"), "{error}");
}

#[test]
fn missing_ssh_keygen_names_its_package() {
    let site = Site::new();
    site.write("signers", "");
    let config = site.read("memory-shepherd.conf");
    let signed = "[general]\nrequire_seal=signed\nseal_signers=./signers\n";
    site.write(
        "memory-shepherd.conf",
        config.replace("[general]\n", signed),
    );
    site.write("key", "");
    // The environment of the site has no PATH.
    let without_path = |arguments: &[&str]| {
        let mut command = site.command();
        site.run_command(command.env("PATH", "/nonexistent").args(arguments))
    };
    let _ = without_path(&["seal", "--all", "--sign", "key"])
        .assert_code(3)
        .assert_stderr_has("openssh-client");
    site.write("baselines/.checksums", "");
    site.write("baselines/.checksums.sig", "x");
    let _ = without_path(&["reset", "--all"])
        .assert_code(4)
        .assert_stderr_has("ssh-keygen: it is not installed");
}

#[test]
fn listed_baseline_without_signature_is_unsigned() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    let state = || world.engine().baseline_catalog().list_baselines().baselines[0].state;
    assert_eq!(state(), BaselineState::Unsealed);
    let bytes = fs::read(seal_file(&world, "scout.md")).unwrap();
    let line = format!("{}  scout.md\n", Digest::of(&bytes));
    fs::write(seal_file(&world, ".checksums"), line).unwrap();
    assert_eq!(state(), BaselineState::Unsigned);
    fs::write(
        seal_file(&world, "scout.md"),
        [&bytes[..], b"more\n"].concat(),
    )
    .unwrap();
    assert_eq!(state(), BaselineState::Unsealed);
}

#[test]
fn signature_of_unchanged_seal_says_so() {
    if !has_ssh_keygen() {
        return;
    }
    let site = Site::new();
    make_key(&site.path("ops"));
    let public = site.read("ops.pub");
    site.write("signers", format!("ops@example.org {public}"));
    let config = site.read("memory-shepherd.conf");
    let signed = "[general]\nseal_signers = signers\n";
    site.write(
        "memory-shepherd.conf",
        config.replacen("[general]\n", signed, 1),
    );
    let sign = |arguments: &[&str]| {
        let mut command = site.command();
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", path);
        site.run_command(command.args(["seal", "--sign", "ops"]).args(arguments))
    };
    let _ = sign(&["--all"]).assert_code(0);
    let _ = sign(&["--dry-run"])
        .assert_code(0)
        .assert_stdout_has("unchanged; would sign the unchanged seal");
    let _ = sign(&[])
        .assert_code(0)
        .assert_stdout_has("unchanged; signed the unchanged seal");
}

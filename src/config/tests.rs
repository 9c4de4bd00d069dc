//! Tests of the config: parsing, values, diagnostics, and the table of keys.

mod location;

use proptest::prelude::*;

use crate::base::invocation::Invocation;

use super::keys::CONFIG_KEYS;
use super::*;

const CONFIG_PATH: &str = "/srv/fleet/night.conf";

fn test_env() -> ConfigEnvironment {
    ConfigEnvironment {
        home: Some(PathBuf::from("/home/op")),
        uid: 1000,
        layouts: vec![LayoutKeys {
            name: "notes",
            keys: &["memory_ref", "state_dir"],
        }],
        ..ConfigEnvironment::bare("/cwd")
    }
}

fn parse_text(text: &str) -> std::result::Result<Config, ConfigErrors> {
    parse(text.as_bytes(), Path::new(CONFIG_PATH), &test_env())
}

fn valid_config(text: &str) -> Config {
    parse_text(text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The config of one local agent with these lines added.
fn local_agent(lines: &str) -> Agent {
    let text = format!("[bot]\nmemory_file=/m.md\nbaseline=b.md\n{lines}");
    valid_config(&text).agents.remove(0)
}

fn error_lines(text: &str) -> Vec<String> {
    let problems = parse_text(text).expect_err("this config is bad");
    problems.0.iter().map(Diagnostic::to_string).collect()
}

// --- differences from the original script ------------------------------------

#[test]
fn hash_inside_value_does_not_cut_it() {
    let config = valid_config(
        "[general]\nseparator=###\n[bot] # c\nmemory_file = /srv/a#1/M.md # c\nbaseline=b#.md",
    );
    assert_eq!(config.general.separator, "###");
    assert!(config.agents[0].uses_baseline("b#.md"));
    let memory = PathBuf::from("/srv/a#1/M.md");
    assert_eq!(config.agents[0].observed_path(), memory);
    assert_eq!(config.agents[0].host(), None);
    assert!(config.warnings.is_empty());
}

#[test]
fn hash_after_whitespace_begins_a_comment() {
    let agent_at = |value: &str| {
        let config = valid_config(&format!("[bot]\nmemory_file = {value}\nbaseline = b.md\n"));
        let memory = config.agents[0].observed_path();
        (memory.display().to_string(), config.warnings.len())
    };
    assert_eq!(agent_at("/a/M.md # note"), ("/a/M.md".into(), 0));
    assert_eq!(agent_at("/a/M.md\t#"), ("/a/M.md".into(), 0));
    assert_eq!(agent_at("/a #1/M.md"), ("/a".into(), 1));
    assert_eq!(agent_at("/a ; b/M.md"), ("/a ; b/M.md".into(), 0));
}

#[test]
fn spaces_around_equals_are_ignored() {
    let config = valid_config("  [ general ]  \n\tfleet_tag \t = \t PROD  west \t\r\n");
    assert_eq!(config.general.fleet_tag.as_deref(), Some("PROD  west"));
}

#[test]
fn unknown_key_is_an_error_with_suggestion() {
    let found = error_lines("[bot]\nmemory_flie = /m.md\nbaseline = b.md\n");
    assert_eq!(
        found,
        [
            "/srv/fleet/night.conf:2: error: `memory_flie` is not a key of an agent\n    \
          memory_flie = /m.md\n    hint: did you mean `memory_file`?"
        ]
    );
}

#[test]
fn baseline_with_a_name_of_the_seal_is_an_error() {
    for name in [".checksums", ".checksums.meta", "./.checksums.sig"] {
        let found = error_lines(&format!("[bot]\nmemory_file=/m.md\nbaseline={name}\n"));
        let [only] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert!(only.contains("must not name a file of the seal"), "{only}");
    }
    let below = valid_config("[bot]\nmemory_file=/m.md\nbaseline=team/.checksums\n");
    assert!(below.agents[0].uses_baseline("team/.checksums"));
}

#[test]
fn invalid_section_name_does_not_leak_keys() {
    let found = error_lines("[a]\nmemory_file=/a.md\nbaseline=a.md\n[b c]\nmemory_file=/b.md\n");
    assert!(found[0].contains(":4: error: a section name has only letters"));
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn invalid_number_is_an_error_not_a_default() {
    for value in ["3O", "-1", "+1", "1e3", "0x10", "1.5", "٣", "0"] {
        let found = error_lines(&format!("[general]\narchive_retention_days={value}\n"));
        assert!(
            found[0].contains("a whole number from 1 to 36500"),
            "{value}"
        );
    }
    assert_eq!(
        valid_config("[general]\narchive_retention_days=007")
            .general
            .archive_retention_days,
        7
    );
}

#[test]
fn empty_config_has_documented_defaults() {
    let config = valid_config("");
    assert_eq!(
        config.general,
        GeneralSettings {
            baseline_dir: "/srv/fleet/baselines".into(),
            archive_dir: "/srv/fleet/archives".into(),
            archive_id: None,
            max_memory_size: 16384,
            min_baseline_size: 1000,
            archive_retention_days: 30,
            separator: "---".into(),
            fleet_name: "night".into(),
            fleet_tag: None,
            protect: Protection::None,
            require_seal: SealRequirement::IfPresent,
            seal_signers: None,
            local_timeout: 30,
            remote_timeout: 15,
            remote_poll: 10,
            archive_mode: 0o600,
            archive_group: None,
            archive_findings: FindingsPolicy::Record,
            every: "3h".parse().unwrap(),
            theme: "terminal".into(),
        }
    );
    assert!(config.agents.is_empty());
    assert!(
        config
            .effective_values()
            .iter()
            .all(|entry| entry.origin == ValueOrigin::Default)
    );
}

#[test]
fn local_agent_overrides_fleet_values() {
    let text = "[general]\nprotect=typed\nmax_memory_size=9\n[a]\nmemory_file=m.md\nbaseline=./x/a.md\n\
                [b]\nmemory_file=~/b.md\nbaseline=b.md\narchive_subdir=x/./y/\nprotect=readonly\nseparator=+++\nevery=1d\n";
    let config = valid_config(text);
    let a = Agent {
        name: "a".into(),
        remote: None,
        reset: Some(ResetMemory {
            path: "/srv/fleet/m.md".into(),
            baseline: "x/a.md".into(),
            separator: "---".into(),
            max_size: 9,
            is_shared: true,
            accept_in_place: false,
            own_interval: None,
        }),
        layout: None,
        archive_subdir: "a".into(),
        archive_findings: FindingsPolicy::Record,
        protect: Protection::Typed,
        section_line: 4,
    };
    let b = Agent {
        name: "b".into(),
        remote: None,
        reset: Some(ResetMemory {
            path: "/home/op/b.md".into(),
            baseline: "b.md".into(),
            separator: "+++".into(),
            max_size: 9,
            is_shared: true,
            accept_in_place: false,
            own_interval: Some("1d".parse().unwrap()),
        }),
        layout: None,
        archive_subdir: "x/y".into(),
        archive_findings: FindingsPolicy::Record,
        protect: Protection::ReadOnly,
        section_line: 7,
    };
    assert_eq!(config.agents, [a, b]);
    assert_eq!(config.origin("a", "protect"), ValueOrigin::Line(2));
    assert_eq!(config.origin("b", "protect"), ValueOrigin::Line(11));
    assert_eq!(config.origin("b", "archive_subdir"), ValueOrigin::Line(10));
    assert_eq!(config.origin("a", "archive_subdir"), ValueOrigin::Default);
    assert_eq!(config.origin("general", "theme"), ValueOrigin::Default);
    assert_eq!(config.origin("nobody", "theme"), ValueOrigin::Default);
}

#[test]
fn interval_of_fleet_is_not_one_of_the_agent() {
    let agents = "[a]\nmemory_file=a.md\nbaseline=a.md\n\
                  [b]\nmemory_file=b.md\nbaseline=b.md\nevery = 30 min\n";
    let config = valid_config(&format!("[general]\nevery = 6h\n{agents}"));
    assert_eq!(config.general.every.to_string(), "6h");
    let own: Vec<Option<String>> = config
        .agents
        .iter()
        .map(|it| it.own_interval().map(|every| every.to_string()))
        .collect();
    assert_eq!(own, [None, Some("30m".to_string())]);
    assert_eq!(config.origin("a", "every"), ValueOrigin::Default);
    assert_eq!(config.origin("b", "every"), ValueOrigin::Line(9));
}

#[test]
fn interval_that_no_calendar_has_names_nearest_ones() {
    let found = error_lines("[general]\nevery = 90m\n");
    assert!(
        found[0].contains(":2: error: `every` must be an interval"),
        "{found:?}"
    );
    assert!(found[0].contains("write 1h or 2h"), "{found:?}");
    let agent = "[a]\nmemory_file=/m\nbaseline=b\nevery=daily\n";
    assert!(error_lines(agent)[0].contains("30m, 3h or 1d"));
}

#[test]
fn findings_policy_of_fleet_can_be_overridden() {
    let agents = "[a]\nmemory_file=a.md\nbaseline=a.md\n\
                  [b]\nmemory_file=b.md\nbaseline=b.md\narchive_findings=redact-copy\n";
    let config = valid_config(&format!(
        "[general]\narchive_findings = quarantine\n{agents}"
    ));
    let policies: Vec<FindingsPolicy> =
        config.agents.iter().map(|it| it.archive_findings).collect();
    assert_eq!(
        policies,
        [FindingsPolicy::Quarantine, FindingsPolicy::RedactCopy]
    );
    assert_eq!(config.origin("a", "archive_findings"), ValueOrigin::Line(2));
    let found = error_lines("[general]\narchive_findings = quarantaine\n");
    assert!(found[0].contains("did you mean `quarantine`?"), "{found:?}");
}

#[test]
fn archive_subdirectory_in_a_quarantine_is_an_error() {
    let agent = |value: &str| format!("[a]\nmemory_file=/m\nbaseline=b\narchive_subdir={value}\n");
    for value in ["scout/quarantine", "x/quarantine/y", "./x/quarantine/"] {
        let found = error_lines(&agent(value));
        assert!(found[0].contains("the archive reserves"), "{found:?}");
    }
    for value in ["quarantine", "quarantine/x", "x/quarantined"] {
        valid_config(&agent(value));
    }
}

#[test]
fn agents_of_one_host_share_longest_timeout() {
    let config = valid_config(
        "[a]\nremote_host=h\nremote_memory=a.md\nbaseline=a.md\nremote_timeout=5\n\
         [b]\nremote_host=h\nremote_memory=b.md\nbaseline=b.md\nremote_timeout=40\n\
         [c]\nremote_host=h\nremote_port=23\nremote_memory=c.md\nbaseline=c.md\nremote_timeout=7\n",
    );
    let hosts: Vec<&SshHost> = config.agents.iter().filter_map(|it| it.host()).collect();
    assert_eq!(hosts[0], hosts[1]);
    let timeouts: Vec<u32> = hosts.iter().map(|host| host.timeout_seconds).collect();
    assert_eq!(timeouts, [40, 40, 7]);
}

#[test]
fn equal_locations_have_equal_file_identities() {
    let identity = |host: &str, more: &str, memory: &str| {
        let config = valid_config(&format!(
            "[r]\nremote_host={host}\n{more}remote_memory={memory}\nbaseline=r.md\n"
        ));
        let (name, port, user, path) = config.agents[0].file_identity();
        (name, port, user.to_string(), path.into_owned())
    };
    let same = identity("box", "", "M.md");
    assert_eq!(identity("BOX", "", "M.md"), same);
    assert_eq!(identity("box", "remote_port=22\n", "M.md"), same);
    assert_eq!(identity("box", "", "~/M.md"), same);
    assert_eq!(identity("box", "", "./M.md"), same);
    assert_ne!(identity("box", "remote_port=23\n", "M.md"), same);
    assert_ne!(identity("box", "remote_user=u\n", "M.md"), same);
    assert_ne!(identity("box", "", "/M.md"), same);
    let root = identity("box", "remote_user=u\n", "/M.md");
    assert_eq!(
        identity("box", "", "/M.md"),
        root,
        "users see the same file"
    );
}

#[test]
fn overlong_remote_path_is_rejected() {
    let text = |path: &str| format!("[r]\nremote_host=h\nremote_memory={path}\nbaseline=r.md\n");
    valid_config(&text(&format!("/{}/M.md", "d/".repeat(2000))));
    for path in [
        format!("/{}M.md", "d/".repeat(2100)),
        format!("/{}", "m".repeat(256)),
    ] {
        let problems = error_lines(&text(&path)).concat();
        assert!(problems.contains("write a shorter one"), "{problems}");
    }
}

#[test]
fn remote_path_is_kept_as_written() {
    let config = valid_config(
        "[general]\nremote_scp_timeout=7\n[r]\nremote_host=h\nremote_user=u\nremote_memory=~/a/./m.md\n\
         remote_port=22\nidentity_file=~/.ssh/id\nbaseline=r.md\nremote_poll=3\n",
    );
    assert_eq!(
        config.agents[0].remote,
        Some(RemoteAccess {
            host: SshHost {
                name: "h".into(),
                user: Some("u".into()),
                port: Some(22),
                identity_file: Some("/home/op/.ssh/id".into()),
                timeout_seconds: 7,
            },
            poll_seconds: 3,
            accept_degraded: Vec::new(),
        })
    );
    assert_eq!(config.agents[0].observed_path(), Path::new("~/a/./m.md"));
    assert_eq!(
        config.origin("r", "remote_scp_timeout"),
        ValueOrigin::Line(2)
    );
}

#[test]
fn accept_degraded_parses_a_list() {
    let with = |list: &str| {
        let text = format!(
            "[r]\nremote_host=h\nremote_memory=m.md\nbaseline=r.md\naccept_degraded={list}\n"
        );
        parse(text.as_bytes(), Path::new("/srv/fleet/a.conf"), &test_env())
    };
    let accepted = |list: &str| with(list).unwrap().agents[0].accept_degraded().to_vec();
    assert_eq!(accepted("fsync"), [SftpExtension::Fsync]);
    assert_eq!(
        accepted("fsync,  posix-rename , hardlink,fsync"),
        SftpExtension::ALL
    );
    for list in ["fsync,", "fsync posix-rename", "all", "fsync@openssh.com"] {
        let problems = with(list).unwrap_err().to_string();
        assert!(problems.contains("accept_degraded"), "{list}: {problems}");
    }
}

#[test]
fn accept_weaker_is_read_as_accept_degraded() {
    let config = valid_config(
        "[r]\nremote_host=h\nremote_memory=m.md\nbaseline=r.md\naccept_weaker=fsync\n",
    );
    assert_eq!(config.agents[0].accept_degraded(), [SftpExtension::Fsync]);
    assert_eq!(config.warnings, []);
}

#[test]
fn accept_degraded_of_other_location_warns() {
    let with = |place: &str, list: &str| {
        valid_config(&format!(
            "[r]\n{place}\nbaseline=r.md\naccept_degraded={list}\n"
        ))
    };
    let warnings = |config: &Config| {
        let all = config.warnings.iter().map(ToString::to_string);
        all.filter(|it| it.contains("has no effect for")).count()
    };
    let (local, remote) = ("memory_file=m.md", "remote_host=h\nremote_memory=m.md");
    let config = with(local, "in-place");
    assert!(config.agents[0].accepts_in_place());
    assert_eq!(warnings(&config), 0);
    let config = with(local, "fsync, hardlink");
    assert!(!config.agents[0].accepts_in_place());
    assert_eq!(warnings(&config), 2);
    let config = with(remote, "fsync, in-place");
    assert!(!config.agents[0].accepts_in_place());
    assert_eq!(config.agents[0].accept_degraded(), [SftpExtension::Fsync]);
    assert_eq!(warnings(&config), 1);
}

#[test]
fn paths_start_at_config_directory_and_keep_dotdots() {
    let path = |value: &str| {
        let config = valid_config(&format!("[general]\nbaseline_dir = {value}\n"));
        config.general.baseline_dir.display().to_string()
    };
    assert_eq!(path("x/./y/"), "/srv/fleet/x/y");
    assert_eq!(path("../x"), "/srv/fleet/../x");
    assert_eq!(path("/a/../b/."), "/a/../b");
    assert_eq!(path("~"), "/home/op");
    assert_eq!(path("~//x"), "/home/op/x");
    assert_eq!(path("./~x"), "/srv/fleet/~x");
    // A relative path of the config itself starts at the current directory.
    let config = parse(b"", Path::new("./a.conf"), &test_env()).unwrap();
    assert_eq!(config.path, Path::new("/cwd/a.conf"));
    assert_eq!(config.general.baseline_dir, Path::new("/cwd/baselines"));
}

#[test]
fn tilde_without_home_is_an_error() {
    let env = ConfigEnvironment {
        home: None,
        ..test_env()
    };
    let text = b"[general]\narchive_dir = ~/x\n";
    let problems = parse(text, Path::new(CONFIG_PATH), &env).unwrap_err();
    assert!(
        problems.to_string().contains("no home is known"),
        "{problems}"
    );
}

#[test]
fn archive_group_sets_group_readable_mode() {
    let mode = |text: &str| {
        valid_config(&format!("[general]\n{text}"))
            .general
            .archive_mode
    };
    assert_eq!(mode(""), 0o600);
    assert_eq!(mode("archive_group=ops"), 0o640);
    assert_eq!(mode("archive_group="), 0o600);
    assert_eq!(mode("archive_group=ops\narchive_mode=600"), 0o600);
    assert_eq!(mode("archive_mode=0o660"), 0o660);
}

#[test]
fn number_unit_is_interpreted_only_in_hint() {
    for (line, hint) in [
        ("max_memory_size = 16 KiB", Some("write bytes: 16384")),
        ("max_memory_size = 1G", Some("write bytes: 1073741824")),
        ("max_memory_size = 1_000", Some("write bytes: 1000")),
        ("archive_retention_days = 30d", Some("write days: 30")),
        ("remote_timeout = 90 minutes", None), // beyond the range
        ("max_memory_size = 99999999999999999G", None),
        ("max_memory_size = 0", None),
        ("max_memory_size = K", None),
    ] {
        let problems = parse_text(&format!("[general]\n{line}\n")).unwrap_err();
        let given = problems.0[0].hints[0].as_str();
        match hint {
            Some(hint) => assert_eq!(given, hint, "{line}"),
            None => assert!(given.contains(" in digits, such as "), "{line}: {given}"),
        }
    }
}

#[test]
fn lint_section_is_typed() {
    let config = valid_config(
        "[lint]\nprofile = tiny\nignore = ms204, vague-rule\nseverity = MS403=warning\n\
         allow = allow.toml\n[a]\nmemory_file=/a.md\nbaseline=a.md\nshared=no\n",
    );
    let lint = &config.lint;
    assert!(
        lint.is_tiny
            && !lint.is_right_to_left
            && !config.agents[0].reset.as_ref().unwrap().is_shared
    );
    assert_eq!(
        lint.ignored_rules,
        [RuleId::Coverage, RuleId::VagueRule].into()
    );
    let severities = [(RuleId::TextAfterSeparator, Severity::Warning)];
    assert_eq!(lint.severities, severities.into());
    assert_eq!(lint.allow_file, Some("/srv/fleet/allow.toml".into()));
    assert_eq!(config.origin("lint", "ignore"), ValueOrigin::Line(3));
}

#[test]
fn alerts_section_is_typed() {
    assert_eq!(valid_config("[general]\n").alerts, None);
    let config = valid_config(
        "[alerts]\non = tampered,disk\ncommand = ./notify 'night shift'\njournal = run/socket\n\
         unreachable_after = 90m\ndisk_below = 5%\nrepeat_after = 0\n",
    );
    let expected = AlertSettings {
        kinds: [AlertKind::Tampered, AlertKind::Disk].into(),
        command: Some(vec!["./notify".to_string(), "night shift".to_string()]),
        directory: "/srv/fleet".into(),
        url: None,
        journal: JournalTarget::Socket("/srv/fleet/run/socket".into()),
        unreachable_after: Duration::from_secs(5400),
        disk_below_percent: 5,
        repeat_after: None,
        max_per_hour: 20,
    };
    assert_eq!(config.alerts, Some(expected));
    assert_eq!(config.origin("alerts", "disk_below"), ValueOrigin::Line(6));
    let defaults = valid_config("[alerts]\njournal = yes\n").alerts.unwrap();
    assert_eq!(defaults.kinds, AlertKind::ALL.into());
    assert_eq!(defaults.journal, JournalTarget::System);
    assert_eq!(defaults.repeat_after, Some(Duration::from_secs(86_400)));
}

#[test]
fn alerts_faults_name_their_line() {
    for (line, fault) in [
        ("on = tampered, driftd", "must be one of tampered, hostkey"),
        (
            "command = notify 'x",
            "must be a program with its arguments",
        ),
        (
            "url = hooks.example.org",
            "must begin with http:// or https://",
        ),
        ("journal = maybe", "must be yes, no or the path of a socket"),
        ("repeat_after = 24", "must be a number with s, m, h or d"),
        ("disk_below = 0", "must be a whole number of percent"),
        ("max_per_hour = 0", "must be a whole number from 1 to 1000"),
        ("comand = notify", "did you mean `command`?"),
    ] {
        let found = error_lines(&format!("[alerts]\n{line}\n")).join("\n");
        assert!(found.contains(fault) && found.contains(":2:"), "{found}");
    }
}

#[test]
fn alerts_without_a_channel_are_a_warning() {
    let warns = |text: &str| {
        let config = valid_config(text);
        let mut warnings = config.warnings.iter();
        warnings.any(|it| it.to_string().contains("names no channel for alerts"))
    };
    assert!(warns("[alerts]\n"));
    assert!(warns("[alerts]\njournal = no\n"));
    assert!(!warns("[alerts]\njournal = yes\n"));
}

#[test]
fn unknown_or_blocking_lint_rule_is_rejected() {
    for (line, expected) in [
        ("ignore = vage-rule", "did you mean `vague-rule`?"),
        ("ignore = MS101", "MS101, which can refuse a reset"),
        ("severity = MS204", "which names no severity"),
        ("severity = MS204=loud", "write MS204=info"),
        ("select = MS1", "`select` is not a key of [lint]"),
        ("memory_file_ = x", "is not a key of [lint]"),
    ] {
        let found = error_lines(&format!("[lint]\n{line}\n")).join("\n");
        assert!(found.contains(expected), "{line}: {found}");
    }
}

#[test]
fn required_signatures_need_allowed_signers() {
    let found = error_lines("[general]\nrequire_seal=signed");
    let found = found.concat();
    assert!(found.contains("needs `seal_signers`"), "{found}");
    let config = valid_config("[general]\nrequire_seal=signed\nseal_signers=/etc/signers");
    assert_eq!(config.general.require_seal, SealRequirement::Signed);
    assert!(
        config
            .warnings
            .iter()
            .all(|it| !it.to_string().contains("seal"))
    );
}

#[test]
fn every_keyword_parses_to_its_variant() {
    for (word, protect) in [
        ("none", Protection::None),
        ("typed", Protection::Typed),
        ("readonly", Protection::ReadOnly),
    ] {
        assert_eq!(local_agent(&format!("protect={word}")).protect, protect);
        assert_eq!(serde_json::to_value(protect).unwrap(), word);
    }
    for (word, seal) in [
        ("if-present", SealRequirement::IfPresent),
        ("always", SealRequirement::Always),
        ("never", SealRequirement::Never),
    ] {
        let config = valid_config(&format!("[general]\nrequire_seal={word}"));
        assert_eq!(config.general.require_seal, seal);
        assert_eq!(serde_json::to_value(seal).unwrap(), word);
    }
}

#[test]
fn agents_are_found_and_suggested_by_name() {
    let text = "[code-reviewer]\nmemory_file=/c.md\nbaseline=c.md\n[monitor]\nmemory_file=/m.md\nbaseline=m.md\n";
    let config = valid_config(text);
    assert_eq!(
        config.agent("monitor").map(|agent| agent.section_line),
        Some(4)
    );
    assert_eq!(config.agent("Monitor"), None);
    assert_eq!(config.suggest_agent("Monitr"), Some("monitor"));
    assert_eq!(config.suggest_agent("code_reviewer"), Some("code-reviewer"));
    assert_eq!(config.suggest_agent("zzz"), None);
}

// --- diagnostics ---------------------------------------------------------------

#[test]
fn problems_join_into_one_error_with_details() {
    let problems =
        parse_text("[general]\nthme = x\nprotect = \n[bot\nremote_poll = soon\n").unwrap_err();
    let lines: Vec<_> = problems.0.iter().map(|it| it.line).collect();
    assert_eq!(lines, [Some(2), Some(3), Some(4), Some(5)]);
    let error = Error::from(problems);
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(error.message(), "/srv/fleet/night.conf: 3 errors");
    for (told, said) in error.details().iter().zip([
        "2: error: `thme` is not a key of [general]; did you mean `theme`?",
        "3: warning: `protect` has no value and counts as unset",
        "4: error: section header without a closing `]`",
        "5: error: `remote_poll` must be a whole number from 1 to 86400, not `soon`",
    ]) {
        assert!(
            told.starts_with(&format!("/srv/fleet/night.conf:{said}")),
            "{told}"
        );
    }
    assert_eq!(error.details().len(), 4);
}

#[test]
fn closest_match_finds_typos_and_transpositions() {
    let words = ["log", "off", "dark", "reset", "remote_poll"];
    for (written, meant) in [
        ("drak", Some("dark")),
        ("lgo", Some("log")),
        ("Rset", Some("reset")),
        ("remotepol", Some("remote_poll")),
        ("on", None),
        ("of", Some("off")),
        ("zzz", None),
    ] {
        assert_eq!(
            closest_match(written, words.into_iter()),
            meant,
            "{written}"
        );
    }
}

#[test]
fn overlong_or_utf16_file_gets_short_error() {
    let found = error_lines(&"x".repeat(5000));
    assert!(found[0].len() < 500, "{}", found[0].len());
    let utf16: Vec<u8> = "\u{feff}[general]\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let problems = parse(&utf16, Path::new(CONFIG_PATH), &test_env()).unwrap_err();
    assert_eq!(problems.0.len(), 1);
    assert!(problems.to_string().contains("UTF-16"), "{problems}");
}

#[test]
fn wrong_file_gets_bounded_errors() {
    let found = error_lines(&"rubbish\n".repeat(1234));
    assert_eq!(found.len(), 1001);
    assert!(found[1000].contains("error: 234 more errors are not shown"));
    let agent =
        |number| format!("[a{number}]\nmemory_file=/{number}.md\nbaseline=a.md\nseparator=a #b\n");
    let many: String = (0..1234).map(agent).collect();
    assert_eq!(valid_config(&many).warnings.len(), 1001);
}

#[test]
fn diagnostics_are_json_for_non_utf8_file_name() {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(b"/srv/\xff.conf"));
    let problems = parse(b"x", path, &test_env()).unwrap_err();
    let json = serde_json::to_value(&problems).unwrap();
    assert_eq!(json[0]["level"], "error");
    assert_eq!(json[0]["line"], 1);
    assert_eq!(json[0]["file"], "/srv/\u{fffd}.conf");
}

#[test]
fn non_utf8_directory_is_an_error() {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(b"/srv/\xff/fleet.conf"));
    let text = b"[scout]\nmemory_file = MEMORY.md\nbaseline = scout.md\n";
    let problems = parse(text, path, &test_env()).unwrap_err();
    assert!(
        format!("{problems:?}").contains("is not UTF-8"),
        "{problems:?}"
    );
}

// --- the table -------------------------------------------------------------------

#[test]
fn key_table_is_consistent() {
    let mut seen = Vec::new();
    for doc in keys() {
        let name = (doc.section == SectionKind::General, doc.name);
        assert!(!seen.contains(&name), "{name:?} occurs twice");
        seen.push(name);
        assert!(
            !doc.description.is_empty() && !doc.description.ends_with('.'),
            "{name:?}"
        );
        assert!(!doc.is_required || doc.default.is_empty(), "{name:?}");
        assert_eq!(keys::canonical_key(doc.name), doc.name);
    }
    // Every default is a value that a line could give.
    for doc in CONFIG_KEYS.iter().filter(|doc| !doc.default.is_empty()) {
        let section = match doc.section {
            SectionKind::General => "general",
            SectionKind::Alerts => "alerts",
            other => panic!("{other:?} {}", doc.name),
        };
        valid_config(&format!("[{section}]\n{} = {}\n", doc.name, doc.default));
    }
    // The keys without a default are those that are optional in `GeneralSettings`.
    let unset = CONFIG_KEYS
        .iter()
        .filter(|doc| doc.section == SectionKind::General && doc.default.is_empty());
    let unset: Vec<_> = unset.map(|doc| doc.name).collect();
    assert_eq!(
        unset,
        [
            "archive_id",
            "fleet_name",
            "fleet_tag",
            "seal_signers",
            "archive_group"
        ]
    );
}

/// The output of `config show`, read again.
fn reparsed_config(config: &Config) -> Config {
    let mut text = String::new();
    let mut section = "";
    let values = config.effective_values();
    for entry in &values {
        if entry.section != section {
            section = &entry.section;
            text.push_str(&format!("[{section}]\n"));
        }
        text.push_str(&format!("{}={}\n", entry.key, entry.value));
    }
    valid_config(&text)
}

fn without_lines(
    config: &Config,
) -> (
    GeneralSettings,
    LintConfig,
    Option<AlertSettings>,
    Vec<Agent>,
) {
    let mut agents = config.agents.clone();
    for agent in &mut agents {
        agent.section_line = 0;
    }
    let (general, lint) = (config.general.clone(), config.lint.clone());
    (general, lint, config.alerts.clone(), agents)
}

#[test]
fn effective_values_round_trip_as_config() {
    let text = include_str!("../../tests/configs/valid/everything.conf");
    let config = valid_config(text);
    assert_eq!(
        without_lines(&reparsed_config(&config)),
        without_lines(&config)
    );
    // The file sets every key of the table.
    for doc in keys() {
        let general = doc.section == SectionKind::General;
        let mut entries = config.effective_values().into_iter();
        let found = entries.find(|it| it.key == doc.name && general == (it.section == "general"));
        let origin = found.map(|it| it.origin);
        assert!(matches!(origin, Some(ValueOrigin::Line(_))), "{}", doc.name);
    }
}

#[test]
fn overlong_key_gets_no_suggestion() {
    let found = error_lines(&format!("[a]\n{}=x\n", "memory_file".repeat(100)));
    let about = found
        .iter()
        .find(|it| it.contains("is not a key of an agent"));
    assert!(!about.unwrap().contains("did you mean"), "{found:?}");
}

#[test]
fn path_that_displays_as_another_is_rejected() {
    for value in ["./ x", "x /", "x /.", "./\u{a0}x", "./~/x"] {
        let found = error_lines(&format!(
            "[a]\nmemory_file=/m\nbaseline=b\narchive_subdir={value}"
        ));
        assert!(found[0].contains("is the path"), "{found:?}");
    }
    for value in ["./~", "./~x", "x /y", "./x/~/y"] {
        let config = valid_config(&format!(
            "[a]\nmemory_file=/m\nbaseline=b\narchive_subdir={value}"
        ));
        assert_eq!(
            without_lines(&reparsed_config(&config)),
            without_lines(&config)
        );
    }
}

/// Lines that are nearly a config.
fn config_like_text() -> impl Strategy<Value = String> {
    let key = prop::sample::select(keys().iter().map(|doc| doc.name).collect::<Vec<_>>());
    let value = prop::sample::select(vec![
        "x", "/x/y.md", "~/x.md", "16384", "16K", "", "---", "typed", "0640", "a #b", "\"q\"",
        "..", "a:b=c", "\\",
    ]);
    let line = prop_oneof![
        4 => (key, value).prop_map(|(key, value)| format!("{key} = {value}")),
        1 => prop::sample::select(vec![
            "[general]", "[a]", "[b] # c", "[lint]", "[alerts]", "[", "[a]x=y", "# c", "", ":", "=", "\u{a0}", "a\rb", "\u{feff}",
        ]).prop_map(String::from),
        1 => ".{0,12}",
    ];
    prop::collection::vec(line, 0..16).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn parse_never_panics_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse(&bytes, Path::new(CONFIG_PATH), &test_env());
    }

    #[test]
    fn parse_succeeds_or_reports_valid_lines(text in config_like_text()) {
        let count = text.split('\n').count();
        match parse_text(&text) {
            Ok(config) => {
                prop_assert!(config.warnings.iter().all(|it| it.level == DiagnosticLevel::Warning));
                prop_assert_eq!(without_lines(&reparsed_config(&config)), without_lines(&config));
            }
            Err(problems) => {
                prop_assert!(problems.0.iter().any(|it| it.level == DiagnosticLevel::Error));
                prop_assert!(problems.0.is_sorted_by_key(|it| it.line));
                for it in &problems.0 {
                    prop_assert!(it.line.is_none_or(|line| (1..=count).contains(&line)), "{it}");
                }
            }
        }
    }
}

//! Themes, and a terminal without UTF-8.

use super::*;

/// The background of the row that offers help.
fn help_row_background(terminal: &Terminal) -> vt100::Color {
    let (rows, columns) = terminal.screen().size();
    terminal
        .screen()
        .cell(rows - 1, columns - 1)
        .unwrap()
        .bgcolor()
}

/// Chooses a theme in the palette.
fn choose_theme(terminal: &mut Terminal, name: &str) {
    terminal.send(":");
    terminal.wait_for(": _");
    terminal.send(&format!("theme {name}"));
    terminal.wait_for(&format!(": theme {name}_"));
    terminal.send("\r");
}

#[test]
fn user_themes_apply_at_once() {
    let site = two_agent_site();
    let own = "home/config/memory-shepherd/themes/mine.toml";
    site.write(
        own,
        "base = \"light\"\n[roles]\ntext = { bg = \"#102030\" }\n",
    );
    for (colorterm, bg) in [
        ("truecolor", vt100::Color::Rgb(0x10, 0x20, 0x30)),
        ("", vt100::Color::Idx(235)),
    ] {
        let mut command = isolated_command(Path::new(PROGRAM_PATH), &site.path("home"));
        command.args(["--theme", "mine", "--config"]);
        command.arg(site.path(CONFIG_NAME));
        command.env("COLORTERM", colorterm);
        let mut terminal = Terminal::start(command, TERMINAL_SIZE);
        terminal.wait_for("DRIFTED  ");
        assert_eq!(help_row_background(&terminal), bg, "{colorterm:?}");
        choose_theme(&mut terminal, "high-contrast");
        terminal.wait("another ground", |terminal| {
            help_row_background(terminal) != bg
        });
        choose_theme(&mut terminal, "terminal");
        terminal.wait("the terminal's ground", |terminal| {
            help_row_background(terminal) == vt100::Color::Default
        });
        quit_console(terminal);
    }
    // A theme that breaks while the console runs is reported, and the old one stays in
    // use.
    let mut terminal = start_fleet(&site);
    site.write(own, "[roles]\ntexte = {}\n");
    choose_theme(&mut terminal, "mine");
    terminal.wait_for("mine.toml:2: error: unknown role");
    assert_eq!(help_row_background(&terminal), vt100::Color::Default);
    quit_console(terminal);
}

#[test]
fn unknown_theme_refuses_to_start() {
    let site = two_agent_site();
    let mut terminal = start_program(&site, &["--theme", "drak"]);
    let ended = terminal.wait_for_exit();
    assert_eq!(ended.exit_code(), 2);
    terminal.assert_restored();
    let said = terminal.text();
    assert!(said.contains("unknown theme `drak`"), "{said}");
    assert!(said.contains("did you mean `dark`?"), "{said}");
    assert!(said.contains("high-contrast"), "{said}");
}

#[test]
fn theme_errors_are_all_reported_with_line() {
    let site = two_agent_site();
    let theme = "base = \"drak\"\n[roles]\naddded = { fg = \"300\" }\nbad = { bgg = \"red\" }\n";
    site.write("home/config/memory-shepherd/themes/night.toml", theme);
    let mut terminal = start_program(&site, &["--theme", "night"]);
    assert_eq!(terminal.wait_for_exit().exit_code(), 2);
    let said = String::from_utf8_lossy(&terminal.bytes).into_owned();
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("night.toml:"))
        .collect();
    for (line, wanted) in lines.iter().zip([
        "night.toml:1: error: unknown built-in theme `drak`; did you mean `dark`?",
        "night.toml:3: error: invalid colour `300`; ",
        "night.toml:3: error: unknown role `addded`; did you mean `added`?",
        "night.toml:4: error: unknown field `bgg`; did you mean `bg`?",
        "night.toml: 4 errors",
    ]) {
        assert!(line.contains(wanted), "{wanted}: {said}");
    }
    assert!(lines.len() == 5 && !said.contains('␊'), "{said}");
    // The console shows the first problem; the log has all of them.
    let mut terminal = start_fleet(&site);
    choose_theme(&mut terminal, "night");
    terminal.wait_for("night.toml:1: error: unknown built-in theme");
    terminal.send("7");
    terminal.wait_for("night.toml:4: error: unknown field");
    terminal.send("q");
    terminal.wait_for("WHY");
    quit_console(terminal);
}

#[test]
fn fleet_theme_applies_when_config_names_it() {
    let site = two_agent_site();
    let mut terminal = start_fleet(&site);
    let before = help_row_background(&terminal);
    let config = site.read(CONFIG_NAME);
    site.write(
        CONFIG_NAME,
        config.replacen("[general]\n", "[general]\ntheme = light\n", 1),
    );
    terminal.wait("another ground", |terminal| {
        help_row_background(terminal) != before
    });
    // The operator's preference overrides it.
    site.write(
        "home/config/memory-shepherd/console.toml",
        "theme = \"terminal\"\n",
    );
    terminal.wait("the ground of before", |terminal| {
        help_row_background(terminal) == before
    });
    quit_console(terminal);
}

#[test]
fn non_utf8_locale_gets_only_ascii() {
    let site = two_agent_site();
    append_note(&site, MONITOR_MEMORY, "- 日本 ─ done\u{202e}\n");
    let mut command = isolated_command(Path::new(PROGRAM_PATH), &site.path("home"));
    command.args(["--config", site.path(CONFIG_NAME).to_str().unwrap()]);
    command.env("LC_ALL", "C");
    let mut terminal = Terminal::start(command, TERMINAL_SIZE);
    terminal.wait_for("DRIFTED  ");
    terminal.wait_for("SCRATCH  ");
    terminal.send("j");
    terminal.wait("the other row", |terminal| {
        agent_row(terminal, "monitor-bot").starts_with('>')
    });
    terminal.send("\r");
    terminal.wait_for("3 scratch lines.");
    terminal.send("\t");
    terminal.wait_for("- ???? - done<U+202E>");
    terminal.send("\x03");
    let _ = terminal.wait_for_exit();
    assert!(terminal.bytes.is_ascii());
}

use std::collections::BTreeSet;

use ratatui::style::{Color, Modifier};

use super::*;

type Rgb = [f64; 3];

/// Returns a colour in linear light.
fn linear_color(colour: Color) -> Rgb {
    let parts = colour_depth::exact_rgb(colour);
    let parts = parts.unwrap_or_else(|| panic!("{colour} looks different everywhere"));
    parts.map(|part| match f64::from(part) / 255.0 {
        low if low <= 0.040_45 => low / 12.92,
        high => ((high + 0.055) / 1.055).powf(2.4),
    })
}

/// Returns foreground and background of a role, over a background that it may be drawn on.
fn composed_colors(theme: &Theme, role: Role, ground: Color) -> (Rgb, Rgb) {
    let (style, text) = (theme.style(role), theme.style(Role::Text));
    let ink = linear_color(style.fg.or(text.fg).unwrap());
    let ground = linear_color(match role {
        Role::Text => ground,
        _ => style.bg.unwrap_or(ground),
    });
    if style.add_modifier.contains(Modifier::REVERSED) {
        (ground, ink)
    } else {
        (ink, ground)
    }
}

/// Relative luminance by WCAG 2; `contrast` is the ratio of two.
fn luminance([red, green, blue]: Rgb) -> f64 {
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

fn contrast(one: Rgb, other: Rgb) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// Returns the roles below a contrast of `least` in a theme with a background of its own.
fn low_contrast_texts(theme: &Theme, least: f64) -> impl Iterator<Item = String> {
    let ground = theme.style(Role::Text).bg.unwrap();
    let cursor = theme.style(Role::Cursor).bg.unwrap();
    let (rule, _) = composed_colors(theme, Role::Rule, ground);
    let mut found = vec![
        ("lines", contrast(rule, linear_color(ground)), 1.5),
        (
            "cursor",
            contrast(linear_color(cursor), linear_color(ground)),
            1.25,
        ),
    ];
    for (role, word) in Role::ALL {
        // Rules are not text, and the cursor never covers them.
        if matches!(role, Role::Rule | Role::Cursor) {
            continue;
        }
        let dim = theme.style(*role).add_modifier.contains(Modifier::DIM);
        assert!(!dim, "{word}: what that comes to is the terminal's");
        for under in [ground, cursor] {
            let (ink, under) = composed_colors(theme, *role, under);
            found.push((word, contrast(ink, under), least));
        }
    }
    let weak = found
        .into_iter()
        .filter(|(_, reached, least)| reached < least);
    weak.map(|(word, reached, _)| format!("{word} {reached:.2}"))
}

#[test]
fn theme_texts_have_readable_contrast() {
    let themes = [
        ("dark", 4.5),
        ("light", 4.5),
        ("colour-blind", 4.5),
        ("high-contrast", 7.0),
    ];
    let mut weak = Vec::new();
    for (name, least) in themes {
        for depth in [ColourDepth::TrueColour, ColourDepth::Indexed256] {
            let theme = Themes::new(None, depth).load(name).unwrap();
            weak.extend(
                low_contrast_texts(&theme, least).map(|weak| format!("{name}, {depth:?}: {weak}")),
            );
        }
    }
    assert!(weak.is_empty(), "{weak:#?}");
}

/// Matrices for colour vision without one kind of cones, in linear light: Machado, Oliveira and
/// Fernandes 2009, full severity.
const COLOR_DEFICIENCIES: [(&str, [Rgb; 3]); 3] = [
    (
        "protanopia",
        [
            [0.152_286, 1.052_583, -0.204_868],
            [0.114_503, 0.786_281, 0.099_216],
            [-0.003_882, -0.048_116, 1.051_998],
        ],
    ),
    (
        "deuteranopia",
        [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ],
    ),
    (
        "tritanopia",
        [
            [1.255_528, -0.076_749, -0.178_779],
            [-0.078_411, 0.930_809, 0.147_602],
            [0.004_733, 0.691_367, 0.303_900],
        ],
    ),
];

fn with_deficiency(matrix: [Rgb; 3], colour: Rgb) -> Rgb {
    let row = |row: Rgb| row.iter().zip(colour).map(|(a, b)| a * b).sum::<f64>();
    matrix.map(|it| row(it).clamp(0.0, 1.0))
}

/// Returns a colour in CIE L*a*b*, in which a distance of 2 is just noticeable.
fn lab_color([red, green, blue]: Rgb) -> Rgb {
    let part = |value: f64| {
        if value > 0.008_856 {
            value.cbrt()
        } else {
            7.787 * value + 16.0 / 116.0
        }
    };
    let x = part((0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505);
    let y = part(0.2126 * red + 0.7152 * green + 0.0722 * blue);
    let z = part((0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089);
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

/// Returns the distance of two roles of a theme, for the colour vision that sees the least of it.
fn min_color_distance(theme: &Theme, one: Role, other: Role) -> f64 {
    // Changed words differ by their background.
    let colour = |role| {
        let style = theme.style(role);
        linear_color(style.bg.or(style.fg).unwrap())
    };
    let distance = COLOR_DEFICIENCIES.iter().map(|(_, matrix)| {
        let (one, other) = (
            lab_color(with_deficiency(*matrix, colour(one))),
            lab_color(with_deficiency(*matrix, colour(other))),
        );
        one.iter()
            .zip(other)
            .map(|(a, b)| (a - b).powi(2))
            .sum::<f64>()
            .sqrt()
    });
    distance.fold(f64::INFINITY, f64::min)
}

#[test]
fn color_blind_theme_keeps_opposites_distinct() {
    let pairs = [
        (Role::Added, Role::Removed),
        (Role::AddedWord, Role::RemovedWord),
        (Role::Good, Role::Bad),
        (Role::Good, Role::Warn),
        (Role::Busy, Role::Tampered),
        (Role::Clean, Role::Tampered),
    ];
    for depth in [ColourDepth::TrueColour, ColourDepth::Indexed256] {
        let theme = Themes::new(None, depth).load("colour-blind").unwrap();
        for (one, other) in pairs {
            let distance = min_color_distance(&theme, one, other);
            assert!(
                distance > 30.0,
                "{depth:?}: {one:?}, {other:?}: {distance:.1}"
            );
        }
    }
    // The measure is meaningful: red and green fail it.
    let dark = Theme::built_in("dark").unwrap();
    let distance = min_color_distance(&dark, Role::Added, Role::Removed);
    assert!(distance < 30.0, "{distance:.1}");
}

#[test]
fn every_built_in_theme_has_every_role() {
    for (name, _) in BUILT_IN_THEMES {
        Theme::built_in(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn mono_uses_no_color_and_marks_states() {
    let mono = Theme::built_in(MONOCHROME_THEME).unwrap();
    assert!(mono.has_word_marks());
    for (role, name) in Role::ALL {
        let style = mono.style(*role);
        assert_eq!((style.fg, style.bg), (None, None), "{name}");
    }
    assert_ne!(mono.style(Role::Cursor), mono.style(Role::Text));
}

#[test]
fn agent_text_never_looks_like_revealed_character() {
    for (name, _) in BUILT_IN_THEMES {
        for depth in [
            ColourDepth::Ansi16,
            ColourDepth::Indexed256,
            ColourDepth::TrueColour,
        ] {
            let theme = Themes::new(None, depth).load(name).unwrap();
            let roles = [
                Role::Text,
                Role::Added,
                Role::AddedWord,
                Role::Removed,
                Role::RemovedWord,
                Role::Dim,
                Role::MarkdownHeading,
                Role::MarkdownStrong,
                Role::MarkdownEmphasis,
                Role::MarkdownCode,
                Role::MarkdownLink,
                Role::MarkdownList,
                Role::MarkdownQuote,
            ];
            for role in roles {
                let style = theme.style(role);
                assert_ne!(style, theme.style(Role::Revealed), "{name}");
                let reversed = style.add_modifier.contains(Modifier::REVERSED);
                assert!(!reversed, "{name} {role:?}");
            }
        }
    }
}

#[test]
fn markdown_never_looks_like_state_or_change() {
    let tones = [
        Role::MarkdownHeading,
        Role::MarkdownStrong,
        Role::MarkdownEmphasis,
        Role::MarkdownCode,
        Role::MarkdownLink,
        Role::MarkdownList,
        Role::MarkdownQuote,
    ];
    let ours = [
        Role::Added,
        Role::AddedWord,
        Role::Removed,
        Role::RemovedWord,
        Role::Separator,
        Role::Good,
        Role::Warn,
        Role::Bad,
        Role::Dim,
    ];
    for (name, _) in BUILT_IN_THEMES {
        let theme = Theme::built_in(name).unwrap();
        let plain = theme.style(Role::Text);
        let states = State::ALL.into_iter().map(role_of_state);
        for ours in states.chain(ours).map(|role| theme.style(role)) {
            for tone in tones {
                let style = theme.style(tone);
                assert!(style == plain || style != ours, "{name}: {tone:?}");
            }
        }
    }
}

#[test]
fn roles_stay_distinct_with_fewer_colors() {
    for (name, _) in BUILT_IN_THEMES {
        for depth in [ColourDepth::Ansi16, ColourDepth::Indexed256] {
            let theme = Themes::new(None, depth).load(name).unwrap();
            let text = theme.style(Role::Text);
            for (role, word) in Role::ALL {
                let style = theme.style(*role);
                for colour in [style.fg, style.bg].into_iter().flatten() {
                    let fits = match colour {
                        Color::Rgb(..) => false,
                        Color::Indexed(_) => depth == ColourDepth::Indexed256,
                        _ => true,
                    };
                    assert!(fits, "{name}, {depth:?}: {word} {colour}");
                }
                let (fg, bg) = (style.fg.or(text.fg), style.bg.or(text.bg));
                assert!(fg.is_none() || fg != bg, "{name}, {depth:?}: {word}");
            }
            let visible_style = |role| {
                let style = theme.style(role);
                (
                    style.fg.or(text.fg),
                    style.bg.or(text.bg),
                    style.add_modifier,
                )
            };
            let colourless = name == &MONOCHROME_THEME;
            let pairs = [
                (Role::Cursor, Role::Text, true),
                (Role::Hit, Role::Text, true),
                (Role::Tampered, Role::Drifted, true),
                (Role::Added, Role::Removed, !colourless),
                (Role::Good, Role::Bad, true),
            ];
            for (one, other, differ) in pairs {
                let different = visible_style(one) != visible_style(other);
                assert!(
                    different || !differ,
                    "{name}, {depth:?}: {one:?}, {other:?}"
                );
            }
        }
    }
}

#[test]
fn colors_reduce_to_the_nearest_available() {
    let near = |depth: ColourDepth, text: &str| {
        let style = Style::new().fg(text.parse().unwrap());
        depth.reduce_style(style, Style::new()).fg.unwrap()
    };
    for (text, indexed, sixteen) in [
        ("#000000", Color::Indexed(16), Color::Black),
        ("#ffffff", Color::Indexed(231), Color::White),
        ("#ff0000", Color::Indexed(196), Color::LightRed),
        ("#1c1c1c", Color::Indexed(234), Color::Black),
        ("#5f87af", Color::Indexed(67), Color::Blue),
        ("#9ad08a", Color::Indexed(114), Color::LightGreen),
        ("#e8c47d", Color::Indexed(186), Color::LightYellow),
        ("#9aa3b2", Color::Indexed(248), Color::DarkGray),
        ("red", Color::Red, Color::Red),
        ("9", Color::Indexed(9), Color::LightRed),
    ] {
        assert_eq!(near(ColourDepth::Indexed256, text), indexed, "{text}");
        assert_eq!(near(ColourDepth::Ansi16, text), sixteen, "{text}");
        assert_eq!(
            near(ColourDepth::TrueColour, text),
            text.parse().unwrap(),
            "{text}"
        );
    }
}

/// Returns the themes with these files in the user's directory.
fn themes_with_files(files: &[(&str, &str)]) -> (tempfile::TempDir, Themes) {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let themes = Themes::new(
        Some(directory.path().to_path_buf()),
        ColourDepth::TrueColour,
    );
    (directory, themes)
}

#[test]
fn user_theme_overrides_base_role_by_role() {
    let (_directory, themes) = themes_with_files(&[
        (
            "mine.toml",
            "base = \"light\"\nword_marks = true\n[roles]\nadded = { fg = \"#0000ff\" }\n",
        ),
        (
            "plain.toml",
            "[roles]\ncursor = { fg = \"black\", bg = \"cyan\" }\n",
        ),
        (
            "dark.toml",
            "base = \"dark\"\n[roles]\nrule = { fg = \"#888888\" }\n",
        ),
        ("notes.txt", "no theme"),
        ("no name.toml", ""),
    ]);
    let (mine, light) = (
        themes.load("mine").unwrap(),
        Theme::built_in("light").unwrap(),
    );
    for (role, name) in Role::ALL {
        let same = mine.style(*role) == light.style(*role);
        assert_eq!(same, *role != Role::Added, "{name}");
    }
    assert_eq!(
        mine.style(Role::Added),
        Style::new().fg(Color::Rgb(0, 0, 255))
    );
    assert!(mine.has_word_marks() && !light.has_word_marks());
    let plain = themes.load("plain").unwrap();
    assert_eq!(plain.style(Role::Cursor).bg, Some(Color::Cyan));
    let terminal = Theme::built_in(DEFAULT_THEME).unwrap();
    assert_eq!(
        plain.style(Role::Bad),
        terminal.style(Role::Bad),
        "over the default"
    );
    // A user's theme replaces the built-in one of its name, and can be based on it.
    let grey = Style::new().fg(Color::Rgb(0x88, 0x88, 0x88));
    assert_eq!(themes.load("dark").unwrap().style(Role::Rule), grey);
    let names = themes.names();
    assert_eq!(names[names.len() - 2..], ["mine", "plain"]);
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    assert_eq!(names.len(), BUILT_IN_THEMES.len() + 2);
}

#[test]
fn theme_errors_are_all_reported_with_line_and_hint() {
    let text = "base = \"drak\"\n[roles]\n# a comment\naddded = { fg = \"#00ff00\" }\n\
                bad = { fg = \"rot\", style = [\"bald\"] }\nzebra = { bg = \"#12\" }\n\
                good = { fg = 300, bgg = \"red\", style = \"bold\" }\ntext = \"red\"\n";
    let (directory, themes) = themes_with_files(&[
        ("mine.toml", text),
        ("base.toml", "base = \"drak\"\n"),
        ("syntax.toml", "[roles]\ntext = { fg = \n"),
        ("key.toml", "\n[roles]\ntext = { colour = \"red\" }\n"),
        ("large.toml", &"#".repeat(70_000)),
    ]);
    let error = |name: &str| {
        let error = themes.load(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{name}");
        (error.message().to_string(), themes.error_lines(&error))
    };
    let (message, lines) = error("mine");
    let file = directory.path().join("mine.toml").display().to_string();
    assert_eq!(message, format!("{file}: 10 errors"));
    for (line, expected) in lines.iter().zip([
        "1: error: unknown built-in theme `drak`; did you mean `dark`?",
        "4: error: unknown role `addded`; did you mean `added`?",
        "5: error: invalid colour `rot`; `#rrggbb`",
        "5: error: unknown attribute `bald`; did you mean `bold`?",
        "6: error: invalid colour `#12`; ",
        "6: error: unknown role `zebra`; valid: text, ",
        "7: error: a colour must be a string in quotes",
        "7: error: unknown field `bgg`; did you mean `bg`?",
        "7: error: style must be a list: ",
        "8: error: a role is written ",
    ]) {
        let expected = format!("mine.toml:{expected}");
        assert!(line.starts_with(&expected), "{expected}\n{line}");
    }
    let (_, lines) = error("base");
    let expected = "unknown built-in theme `drak`; did you mean `dark`?";
    assert_eq!(lines, [format!("base.toml:1: error: {expected}")]);
    let (_, lines) = error("syntax");
    assert!(
        lines.len() == 1 && lines[0].starts_with("syntax.toml:2: error: "),
        "{lines:?}"
    );
    let (_, lines) = error("key");
    assert!(
        lines[0].starts_with("key.toml:3: error: unknown field `colour`; "),
        "{lines:?}"
    );
    let (_, lines) = error("large");
    let large = "cannot read large.toml: it is larger than 65536 bytes";
    assert_eq!(lines, [format!("{large}; a theme has one line per role")]);
    let fifo = directory.path().join("fifo.toml");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, fifo, kind, mode, 0).unwrap();
    assert!(error("fifo").0.contains("is not a regular file"));
}

#[test]
fn unknown_theme_lists_available_names() {
    let (directory, themes) = themes_with_files(&[("mine.toml", "")]);
    let error = themes.load("drak").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::User);
    assert_eq!(error.message(), "unknown theme `drak`");
    let names = "terminal, dark, light, high-contrast, colour-blind, mono, mine";
    assert_eq!(
        error.hints(),
        [
            "did you mean `dark`?".to_string(),
            format!("available themes: {names}"),
            format!("put your own themes into {}", directory.path().display()),
        ]
    );
    // A name cannot point to another file.
    for name in ["", "../mine", "a/b", ".hidden", "/etc/passwd"] {
        assert_eq!(
            themes.load(name).unwrap_err().kind(),
            ErrorKind::User,
            "{name}"
        );
    }
    // Without the directory there are only built-in themes.
    for path in [directory.path().join("none"), "/dev/null/themes".into()] {
        let none = Themes::new(Some(path), ColourDepth::TrueColour);
        assert_eq!(none.names().len(), BUILT_IN_THEMES.len());
        none.load("dark").unwrap();
    }
}

#[test]
fn console_page_lists_themes_and_example_is_valid() {
    let page = include_str!("../../../docs/console.md");
    let (_, section) = page.split_once("## Themes").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    for (name, _) in BUILT_IN_THEMES {
        assert!(section.contains(&format!("`{name}`")), "{name}");
    }
    let example = section.split("```").nth(1).unwrap();
    let (_directory, themes) =
        themes_with_files(&[("mine.toml", example.strip_prefix("toml\n").unwrap())]);
    let theme = themes.load("mine").unwrap();
    assert_eq!(
        theme.style(Role::Added).fg,
        Some(Color::Rgb(0x6f, 0xb1, 0xff))
    );
}

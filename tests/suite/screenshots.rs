//! The pictures in `screenshots/`: made from the real screens over the example
//! fleet, and out of date when a screen has changed.
//!
//! `UPDATE_SCREENSHOTS=1 cargo test screenshots` draws them anew.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};
use memory_shepherd::clock::Clock;
use memory_shepherd::config::{self, Env};
use memory_shepherd::console::model::{Model, Moment};
use memory_shepherd::console::theme::Theme;
use memory_shepherd::console::update::{Msg, Texts, update};
use memory_shepherd::console::{first_model, runs, text, view};
use memory_shepherd::demo;
use memory_shepherd::engine::{Engine, Setup, State, Trigger};
use memory_shepherd::transport::local::Local;
use memory_shepherd::transport::sftp::Everywhere;
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use unicode_width::UnicodeWidthStr;

const SIZE: (u16, u16) = (120, 30);

/// A morning on which nothing moves.
struct Still;

impl Clock for Still {
    fn now(&self) -> DateTime<FixedOffset> {
        DateTime::parse_from_rfc3339("2026-03-14T09:10:00+00:00").unwrap()
    }

    fn instant(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, _: Duration) {
        std::thread::yield_now();
    }
}

fn moment() -> Moment {
    Moment {
        since: Duration::ZERO,
        wall: Still.now(),
    }
}

fn engine(demo: &demo::Demo) -> Engine {
    let env = Env {
        cwd: demo.folder().to_path_buf(),
        home: None,
        xdg_config_home: None,
        xdg_state_home: None,
        config_variable: None,
        uid: 0,
    };
    Engine::new(Setup {
        config: config::load(demo.config(), &env).unwrap(),
        clock: Arc::new(Still),
        transports: Arc::new(Everywhere::new(
            Arc::new(Local::new(Arc::new(Still))),
            demo.host().clone(),
            Arc::new(Still),
        )),
        user: "ops".to_string(),
        trigger: Trigger::Console,
        archive_group: None,
    })
}

/// The example fleet as the console has just read it, without what differs from
/// one run to the next.
fn fleet(engine: &Engine) -> Model {
    let mut model = first_model(engine.config(), moment(), SIZE);
    let observations = engine.config().agents.iter().map(|agent| {
        let mut seen = engine.observe(agent);
        if seen.state == State::Busy {
            seen.why = "locked by run 5a10c3d2 of timer (process 4711, since 09:04:51)".to_string();
        }
        seen
    });
    update(&mut model, moment(), Msg::Observed(observations.collect()));
    update(&mut model, moment(), Msg::Log(Ok(runs(engine).unwrap())));
    model
}

fn open(model: &mut Model, engine: &Engine, name: &str) {
    let detail = engine.detail(engine.agent(name).unwrap());
    model.screen = memory_shepherd::console::model::Screen::Agent;
    model.agent.name = name.to_string();
    let texts = Texts {
        agent: name.to_string(),
        generation: detail.observation.generation,
        diff: text::diff(&detail, None),
        scratch: text::scratch(&detail),
        findings: String::new(),
        copied: None,
    };
    update(model, moment(), Msg::Texts(Box::new(texts)));
}

fn draw(model: &Model) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, SIZE.0, SIZE.1));
    view::draw(model, &Theme::named("terminal").unwrap(), &mut buffer);
    buffer
}

const CELL: (f32, f32) = (8.4, 18.0);
const GROUND: &str = "#15181e";
const INK: &str = "#d5d9e0";

fn colour(colour: Color, plain: &'static str) -> &'static str {
    match colour {
        Color::Red => "#f2777a",
        Color::Green => "#8fc97d",
        Color::Yellow => "#e5c07b",
        Color::Magenta => "#d291e4",
        Color::Cyan => "#6fc3d6",
        Color::Black => GROUND,
        _ => plain,
    }
}

/// What a cell looks like: ink, ground, attributes.
fn look(cell: &Cell) -> (&'static str, &'static str, Modifier) {
    let (ink, ground) = (colour(cell.fg, INK), colour(cell.bg, GROUND));
    match cell.modifier.contains(Modifier::REVERSED) {
        true => (ground, ink, cell.modifier),
        false => (ink, ground, cell.modifier),
    }
}

fn svg(buffer: &Buffer) -> String {
    let (columns, rows) = SIZE;
    let (width, height) = (
        f32::from(columns) * CELL.0 + 24.0,
        f32::from(rows) * CELL.1 + 24.0,
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"14\">\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{GROUND}\"/>\n"
    );
    for y in 0..rows {
        let mut x = 0;
        while x < columns {
            let first = &buffer[(x, y)];
            let style = look(first);
            let (mut text, mut cells) = (String::new(), 0);
            while x + cells < columns && look(&buffer[(x + cells, y)]) == style {
                let symbol = buffer[(x + cells, y)].symbol();
                text.push_str(symbol);
                cells += symbol.width().max(1) as u16;
            }
            run(&mut out, (x, y), cells, &text, style);
            x += cells;
        }
    }
    out.push_str("</svg>\n");
    out
}

fn run(out: &mut String, at: (u16, u16), cells: u16, text: &str, style: (&str, &str, Modifier)) {
    let (ink, ground, modifier) = style;
    let (left, top) = (
        12.0 + f32::from(at.0) * CELL.0,
        12.0 + f32::from(at.1) * CELL.1,
    );
    let width = f32::from(cells) * CELL.0;
    if ground != GROUND {
        writeln!(out, "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{}\" fill=\"{ground}\"/>", CELL.1).unwrap();
    }
    if text.trim().is_empty() {
        return;
    }
    let mut extra = String::new();
    if modifier.contains(Modifier::BOLD) {
        extra.push_str(" font-weight=\"bold\"");
    }
    if modifier.contains(Modifier::DIM) {
        extra.push_str(" opacity=\"0.6\"");
    }
    if modifier.contains(Modifier::UNDERLINED) {
        extra.push_str(" text-decoration=\"underline\"");
    }
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    writeln!(
        out,
        "<text x=\"{left:.1}\" y=\"{:.1}\" textLength=\"{width:.1}\" fill=\"{ink}\"{extra} xml:space=\"preserve\">{text}</text>",
        top + 13.5
    )
    .unwrap();
}

#[test]
fn screenshots_are_up_to_date() {
    let demo = demo::build_temporary(&std::env::temp_dir(), None, &Still).unwrap();
    let engine = engine(&demo);
    let mut model = fleet(&engine);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("screenshots");
    let mut stale = Vec::new();
    let mut check = |name: &str, model: &Model| {
        let path = folder.join(name);
        let picture = svg(&draw(model));
        if std::env::var_os("UPDATE_SCREENSHOTS").is_some() {
            std::fs::write(&path, &picture).unwrap();
        }
        if std::fs::read_to_string(&path).ok().as_ref() != Some(&picture) {
            stale.push(name.to_string());
        }
    };
    check("fleet.svg", &model);
    open(&mut model, &engine, "code-reviewer");
    check("agent.svg", &model);
    assert!(
        stale.is_empty(),
        "{stale:?} changed: UPDATE_SCREENSHOTS=1 cargo test screenshots"
    );
}

//! The pictures in `screenshots/`: made from the real screens over the example fleet,
//! and outdated when a screen has changed.
//!
//! `UPDATE_SCREENSHOTS=1 cargo test screenshots` redraws them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};
use memory_shepherd::archive::search::Query;
use memory_shepherd::base::clock::Clock;
use memory_shepherd::base::diff::count_changes;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::config;
use memory_shepherd::console::keys::key::{self, Key, KeyCode};
use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;
use memory_shepherd::console::markdown::MarkdownHighlighter;
use memory_shepherd::console::message::{AgentTexts, ComparisonTexts, Effect, Msg};
use memory_shepherd::console::model::{Model, Moment};
use memory_shepherd::console::screens::agent::state::memory::{
    ItemPage, ItemsRequest, OpenedMemory,
};
use memory_shepherd::console::screens::archives::state::FoundRows;
use memory_shepherd::console::screens::reset::state::PlanRequest;
use memory_shepherd::console::text::PreparedText;
use memory_shepherd::console::theme::{Role, Theme};
use memory_shepherd::console::update::update;
use memory_shepherd::console::{initial_model, load_runs, summarize_findings, text, view};
use memory_shepherd::demo;
use memory_shepherd::engine::{
    BaselineList, Engine, EngineSetup, FileOwner, FleetEvent, HostStatus, Plan, RunProgress,
    ScratchRequest, SearchRequest, State, Trigger, UndoTarget,
};
use memory_shepherd::layouts::Layouts;
use memory_shepherd::transport::local::LocalTransport;
use memory_shepherd::transport::sftp::PerHostTransports;
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use unicode_width::UnicodeWidthStr;

use crate::archive_samples::entry_text;
use crate::temporary_root::temporary_root;
use crate::world::bare_environment;

const SCREEN_SIZE: (u16, u16) = (120, 30);

/// The fixed time of all pictures.
struct FixedClock;

impl Clock for FixedClock {
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

fn moment(since: Duration) -> Moment {
    Moment {
        elapsed: since,
        local_time: FixedClock.now(),
    }
}

fn demo_engine(demo: &demo::Demo) -> Engine {
    let env = bare_environment(demo.directory());
    Engine::new(EngineSetup {
        config: config::load(demo.config_path(), &env).unwrap(),
        clock: Arc::new(FixedClock),
        transports: Arc::new(PerHostTransports::new(
            Arc::new(LocalTransport::new(Arc::new(FixedClock))),
            demo.host().clone(),
            Arc::new(FixedClock),
        )),
        user: "ops".to_string(),
        trigger: Trigger::Console,
        archive_group: None,
        layouts: Layouts::BUILT_IN,
    })
}

/// The console over the example fleet, driven by keys: requests to the engine complete
/// at once, and fixed values replace those that differ between runs.
struct ScriptedConsole<'e> {
    engine: &'e Engine,
    model: Model,
    since: Duration,
    /// The most recent plan, as the engine made it.
    plan: Option<Plan>,
    /// The id of the last run; the pictures show another one.
    run: String,
    /// Events of the run that are still to be delivered.
    pending_messages: Vec<Msg>,
}

/// The id of every run and plan in the pictures.
const RUN_ID: &str = "7f3c91d2";

impl ScriptedConsole<'_> {
    fn new(engine: &Engine) -> ScriptedConsole<'_> {
        let since = Duration::from_secs(60);
        let mut show = ScriptedConsole {
            engine,
            model: initial_model(engine.config(), moment(since), SCREEN_SIZE),
            since,
            plan: None,
            run: String::new(),
            pending_messages: Vec::new(),
        };
        // The fleet is in a directory of another name each time.
        let place = show.model.rows.place("carrier-scout").unwrap();
        show.model.rows.change(place, |row| {
            let layout = row.layout.as_mut().unwrap();
            layout.directory = "/srv/lighthouse/agents/carrier-scout/memory".into();
        });
        show.observe_all();
        show.send(Msg::Fleet(FleetEvent::HostsChanged(
            engine
                .hosts()
                .host_statuses()
                .into_iter()
                .map(with_fixed_host)
                .collect(),
        )));
        show.send_log();
        show
    }

    fn observe_all(&mut self) {
        let agents: Vec<_> = self.engine.config().agents.iter().collect();
        self.engine.health().check_due(&agents);
        let observations = agents.into_iter().map(|agent| {
            let mut seen = self.engine.observer().observe(agent);
            if seen.state == State::Busy {
                seen.reason =
                    "locked by run 5a10c3d2 of timer (process 4711, since 2026-03-14 09:04:51)"
                        .to_string();
            }
            seen
        });
        self.send(Msg::Fleet(FleetEvent::Observed(observations.collect())));
    }

    /// Lists jobs as not ended.
    fn list_jobs(&mut self, labels: &[&str]) {
        let labels = labels.iter().map(ToString::to_string).collect();
        let jobs = &mut self.model.background_jobs;
        jobs.follow_requests(labels, moment(self.since));
    }

    fn send_log(&mut self) {
        let (mut runs, _) = load_runs(self.engine).unwrap();
        let count = runs.len();
        for (number, run) in runs.iter_mut().enumerate() {
            run.run_id = match run.run_id == self.run {
                true => RUN_ID.to_string(),
                false => format!("5a10c3{:02x}", count - number),
            };
            for event in &mut run.events {
                event.duration_ms = 40;
            }
        }
        self.send(Msg::LogLoaded(Ok(runs)));
    }

    fn send(&mut self, msg: Msg) {
        let effects = update(&mut self.model, moment(self.since), msg);
        for effect in effects {
            self.carry_out(effect);
        }
    }

    /// Presses keys, far enough apart for a plan to accept them.
    fn press(&mut self, keys: &str) {
        for key in keys
            .split(' ')
            .flat_map(|key| key::parse_sequence(key).unwrap())
        {
            self.since += KEY_GUARD_TIME;
            self.send(Msg::Tick);
            self.send(Msg::KeysPressed(vec![key]));
        }
        // The details of the cursor's row arrive a moment later.
        self.since += KEY_GUARD_TIME;
        self.send(Msg::Tick);
    }

    fn type_text(&mut self, text: &str) {
        for c in text.chars() {
            self.send(Msg::KeysPressed(vec![Key::from_code(KeyCode::Char(c))]));
        }
    }

    fn open_agent(&mut self, name: &str) {
        self.press(":");
        self.type_text(&format!("agent {name}"));
        self.press("Enter");
    }

    /// Answers with all items of a collection.
    fn read_items(&mut self, request: &ItemsRequest) {
        let memory = self.engine.layouts().open(&request.agent).unwrap();
        let collections = memory.collections().unwrap();
        let collection = request.collection.clone();
        let collection = collection.or_else(|| Some(collections.first()?.id.clone()));
        let pages = memory
            .layout
            .items(&memory.files, collection.as_ref().unwrap());
        let opened = OpenedMemory {
            layout: memory.layout.name(),
            operations: memory.layout.operations(),
            collection,
            collections,
        };
        let items = pages.unwrap().flat_map(Result::unwrap).collect();
        self.send(Msg::MemoryOpened(request.number, Ok(Box::new(opened))));
        let is_last = true;
        let page = ItemPage { items, is_last };
        self.send(Msg::ItemsRead(request.number, Ok(page)));
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::PrepareTexts(name) => {
                let detail = self
                    .engine
                    .observer()
                    .read_detail(self.engine.agent(&name).unwrap());
                let generation = detail.observation.generation;
                let texts = AgentTexts {
                    agent: name.clone(),
                    address: detail.observation.address.clone(),
                    generation,
                    diff: text::prepare_diff(&detail, None),
                    scratch: text::prepare_scratch(&detail),
                    baseline: PreparedText::default(),
                    baseline_titles: Default::default(),
                    facts: Vec::new(),
                    diff_titles: [
                        format!("baseline {name}-MEMORY.md (above ---)"),
                        format!("memory agents/{name}/MEMORY.md"),
                    ],
                    findings: summarize_findings(&detail),
                    cached_observation: None,
                    observation: None,
                };
                self.send(Msg::TextsPrepared(Box::new(texts)));
                let tones = MarkdownHighlighter::load().line_tones(&detail.memory_prefix, &|| true);
                self.send(Msg::TonesPrepared(name, generation, tones));
            }
            Effect::MakePlan(id, request, unlocked) => {
                let plan = match &request {
                    PlanRequest::Reset(agents) => {
                        self.engine.planner().plan_reset(agents, unlocked)
                    }
                    PlanRequest::Push(agents, ScratchRequest::Selection(selection)) => {
                        self.engine.planner().plan_push(agents, selection, unlocked)
                    }
                    PlanRequest::Push(agents, ScratchRequest::Chosen(lines)) => self
                        .engine
                        .planner()
                        .plan_push_of_chosen(agents, lines, unlocked),
                    PlanRequest::Edit { agent, request } => {
                        let planned = self.engine.layouts().plan(agent, request, unlocked);
                        planned.map(|it| it.plan).map_err(Into::into)
                    }
                    PlanRequest::Undo(UndoTarget::Run(_), mode) => {
                        let target = UndoTarget::Run(self.run.clone());
                        self.engine.planner().plan_undo(&target, *mode, unlocked)
                    }
                    PlanRequest::Undo(target, mode) => {
                        self.engine.planner().plan_undo(target, *mode, unlocked)
                    }
                };
                let plan = plan.unwrap();
                let mut shown = plan.clone();
                shown.hash = RUN_ID.to_string();
                for undo in shown
                    .steps
                    .iter_mut()
                    .filter_map(|step| step.undone_run.as_mut())
                {
                    undo.run = RUN_ID.to_string();
                }
                self.plan = Some(plan);
                self.send(Msg::PlanMade(id, Ok(Box::new(shown))));
            }
            Effect::ApplyPlan(_) => {
                let plan = self.plan.take().unwrap();
                let mut told = Vec::new();
                let cancel = AtomicBool::new(false);
                let mut report =
                    self.engine
                        .runs()
                        .apply_plan(&plan, true, &cancel, &mut |progress| {
                            told.push(Msg::RunProgressed(with_fixed_times(progress)));
                        });
                self.run = std::mem::replace(&mut report.run, RUN_ID.to_string());
                report.duration_ms = 180;
                told.push(Msg::RunEnded(Box::new(report)));
                self.pending_messages = told;
            }
            Effect::ReadItems(request) => self.read_items(&request),
            Effect::ReadItemContent(request) => {
                let memory = self.engine.layouts().open(&request.agent).unwrap();
                let collection = request.collection.as_deref();
                let content = memory.layout.read(&memory.files, collection, &request.item);
                let text = text::prepare_item(&content.unwrap());
                self.send(Msg::ItemContentRead(request, Ok(text)));
            }
            Effect::CheckMemory(number, agent) => {
                let agent = self.engine.agent(&agent).unwrap();
                let findings = self.engine.health().check(agent);
                let findings = findings.map_err(|error| error.to_line());
                self.send(Msg::MemoryChecked(number, findings));
            }
            Effect::LoadHostSettings(host) => {
                self.send(Msg::HostSettingsLoaded(host, Ok(Vec::new())));
            }
            Effect::LoadLog => self.send_log(),
            Effect::LoadBaselines => {
                let list = with_fixed_owners(self.engine.baseline_catalog().list_baselines());
                self.send(Msg::BaselinesLoaded(Ok(Box::new(list))));
            }
            Effect::CompareBaseline(request) => {
                let versions = request.sides.each_ref().map(|side| {
                    let version = side.argument();
                    self.engine
                        .baseline_catalog()
                        .find_baseline_version(&request.name, &version)
                        .unwrap()
                });
                let texts = [&versions[0].1, &versions[1].1].map(|bytes| bytes.as_slice());
                let titles = [0, 1].map(|side: usize| {
                    let digest = versions[side].0.short_hex(8);
                    format!("{}  {digest}…", request.sides[side].label())
                });
                let texts = ComparisonTexts {
                    texts: text::ComparedTexts {
                        text: text::prepare_comparison(texts, None),
                        titles,
                        changed_lines: count_changes(texts[0], texts[1], None),
                    },
                    old_side: request.sides[0].clone(),
                };
                self.send(Msg::BaselineCompared(request, Ok(Box::new(texts))));
            }
            Effect::SearchArchive(request) => {
                let now = self.engine.clock().now();
                let query = Query::parse(&request.query, now).unwrap();
                let search = SearchRequest {
                    query: query.while_typing(&request.query),
                    order: request.order,
                    limit: request.limit,
                    max_lines: 1,
                    reads_remote: false,
                };
                let found = FoundRows {
                    query: request.query,
                    result: self
                        .engine
                        .search()
                        .search_archive(&search, &|| true)
                        .unwrap(),
                };
                let number = request.number;
                self.send(Msg::ArchiveSearched(number, Ok(Box::new(found))));
                self.send(Msg::ArchiveSearchEnded(number));
            }
            Effect::ReadEntryText(request) => {
                let text = self
                    .engine
                    .search()
                    .read_source(&request.source, 1 << 20)
                    .unwrap();
                let text = String::from_utf8(text.bytes).unwrap();
                let word = request.query.split(' ').next().unwrap_or_default();
                let text = entry_text(&text, word);
                self.send(Msg::EntryTextRead(request, Ok(text)));
            }
            Effect::Verify => {
                let cancel = AtomicBool::new(false);
                let mut found = self
                    .engine
                    .verifier()
                    .verify(None, &cancel, &mut |_| {})
                    .unwrap();
                // The records of the example fleet have other times and ids each time.
                found.ledger.sha256 = Digest::ZERO;
                self.send(Msg::Verified(Ok(Box::new(found))));
            }
            Effect::LoadHistory(name) => {
                let mut past = self
                    .engine
                    .history()
                    .agent_history(&name, 100)
                    .unwrap()
                    .entries;
                for (number, past) in past.iter_mut().enumerate() {
                    past.record.event.run = format!("5a10c3{number:02x}");
                }
                self.send(Msg::HistoryLoaded(name, Ok(past)));
            }
            _ => {}
        }
    }

    /// Delivers the events of a run until `done` agents are done.
    fn send_progress(&mut self, done: usize) {
        let mut seen = 0;
        while seen < done && !self.pending_messages.is_empty() {
            let msg = self.pending_messages.remove(0);
            seen += usize::from(matches!(msg, Msg::RunProgressed(RunProgress::AgentDone(_))));
            self.send(msg);
        }
    }
}

fn with_fixed_times(progress: RunProgress) -> RunProgress {
    match progress {
        RunProgress::AgentDone(mut result) => {
            result.duration_ms = 40;
            RunProgress::AgentDone(result)
        }
        other => other,
    }
}

/// The files of the example fleet have another directory, owner and time each time.
fn with_fixed_owners(mut list: BaselineList) -> BaselineList {
    list.directory = "/etc/memory-shepherd/baselines".into();
    let changed_at = FixedClock.now() - chrono::Duration::minutes(419);
    for summary in &mut list.baselines {
        summary.changed = summary.changed.map(|_| changed_at);
        summary.owner = summary.owner.map(|_| FileOwner {
            uid: 1004,
            gid: 1004,
            mode: 0o664,
            modified_at: changed_at,
            changed_at,
        });
        if let Some(push) = &mut summary.last_push {
            push.run = RUN_ID.to_string();
        }
    }
    list
}

/// The demo's host has another port and another latency each time.
fn with_fixed_host(mut status: HostStatus) -> HostStatus {
    status.host.port = None;
    status.connection.latency = Some(Duration::from_millis(38));
    status
}

fn render_buffer(model: &Model, theme: &Theme) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, SCREEN_SIZE.0, SCREEN_SIZE.1));
    view::draw(model, theme, &mut buffer);
    buffer
}

const CELL_SIZE: (f32, f32) = (8.4, 18.0);
/// Foreground and background of a cell, and its attributes.
type CellColors = (String, String, Modifier);

fn svg_color(colour: Color) -> String {
    match colour {
        Color::Rgb(red, green, blue) => format!("#{red:02x}{green:02x}{blue:02x}"),
        other => panic!("{other} looks different in every terminal"),
    }
}

fn cell_colors(cell: &Cell, ground: Color) -> CellColors {
    // The cell behind a wide sign has no style of its own.
    let own = |colour| {
        if colour == Color::Reset {
            ground
        } else {
            colour
        }
    };
    let (ink, ground) = (svg_color(own(cell.fg)), svg_color(own(cell.bg)));
    let rest = cell.modifier - Modifier::REVERSED;
    match cell.modifier.contains(Modifier::REVERSED) {
        true => (ground, ink, rest),
        false => (ink, ground, rest),
    }
}

fn render_svg(buffer: &Buffer, theme: &Theme) -> String {
    let (columns, rows) = SCREEN_SIZE;
    let width = f32::from(columns) * CELL_SIZE.0 + 24.0;
    let height = f32::from(rows) * CELL_SIZE.1 + 24.0;
    let ground = theme.style(Role::Text).bg.unwrap();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"14\">\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{}\"/>\n",
        svg_color(ground)
    );
    for y in 0..rows {
        let mut x = 0;
        while x < columns {
            let style = cell_colors(&buffer[(x, y)], ground);
            let (mut text, mut cells) = (String::new(), 0);
            while x + cells < columns && cell_colors(&buffer[(x + cells, y)], ground) == style {
                let symbol = buffer[(x + cells, y)].symbol();
                text.push_str(symbol);
                cells += symbol.width().max(1) as u16;
            }
            write_text_run(&mut out, (x, y), cells, &text, &style, &svg_color(ground));
            x += cells;
        }
    }
    out.push_str("</svg>\n");
    out
}

fn write_text_run(
    out: &mut String,
    (x, y): (u16, u16),
    cells: u16,
    text: &str,
    (ink, behind, modifier): &CellColors,
    ground: &str,
) {
    let left = |x: u16| 12.0 + f32::from(x) * CELL_SIZE.0;
    let top = 12.0 + f32::from(y) * CELL_SIZE.1;
    if behind != ground {
        let (left, width) = (left(x), f32::from(cells) * CELL_SIZE.0);
        let height = CELL_SIZE.1;
        writeln!(out, "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{behind}\"/>").unwrap();
    }
    // Blanks at either side may be missing.
    let before = text.len() - text.trim_start().len();
    let text = text.trim();
    if text.is_empty() {
        return;
    }
    let (left, width) = (left(x + before as u16), text.width() as f32 * CELL_SIZE.0);
    let mut extra = String::new();
    for (attribute, code) in [
        (Modifier::BOLD, " font-weight=\"bold\""),
        (Modifier::ITALIC, " font-style=\"italic\""),
        (Modifier::UNDERLINED, " text-decoration=\"underline\""),
    ] {
        if modifier.contains(attribute) {
            extra.push_str(code);
        }
    }
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let base = top + 13.5;
    writeln!(
        out,
        "<text x=\"{left:.1}\" y=\"{base:.1}\" textLength=\"{width:.1}\" fill=\"{ink}\"{extra} xml:space=\"preserve\">{text}</text>",
    )
    .unwrap();
}

/// The pictures of each screen, by name.
struct ScreenshotSet {
    themes: Vec<(&'static str, Theme)>,
    pictures: BTreeMap<String, String>,
}

impl ScreenshotSet {
    fn add_screenshot(&mut self, name: &str, show: &ScriptedConsole<'_>) {
        for (theme, look) in &self.themes {
            let picture = render_svg(&render_buffer(&show.model, look), look);
            self.pictures.insert(format!("{name}-{theme}.svg"), picture);
        }
    }

    /// Asserts that the directory holds exactly these pictures.
    fn assert_up_to_date(self) {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("screenshots");
        let held = || fs::read_dir(&directory).unwrap().map(|file| file.unwrap());
        if std::env::var_os("UPDATE_SCREENSHOTS").is_some() {
            held().for_each(|file| fs::remove_file(file.path()).unwrap());
            for (name, picture) in &self.pictures {
                fs::write(directory.join(name), picture).unwrap();
            }
        }
        let name = |file: fs::DirEntry| file.file_name().to_string_lossy().into_owned();
        let mut stale: BTreeSet<String> = held().map(name).collect();
        for (name, picture) in &self.pictures {
            match fs::read_to_string(directory.join(name)) {
                Ok(text) if text == *picture => drop(stale.remove(name)),
                _ => drop(stale.insert(name.clone())),
            }
        }
        assert!(
            stale.is_empty(),
            "{stale:?} changed; to update: UPDATE_SCREENSHOTS=1 cargo test screenshots"
        );
    }
}

#[test]
fn screenshots_are_up_to_date() {
    let demo =
        demo::build_temporary(&temporary_root(&std::env::temp_dir()), None, &FixedClock).unwrap();
    let engine = demo_engine(&demo);
    engine.hosts().connect_all_hosts();
    let themes = ["dark", "light"].map(|name| (name, Theme::built_in(name).unwrap()));
    let mut album = ScreenshotSet {
        themes: themes.into(),
        pictures: BTreeMap::new(),
    };
    let mut show = ScriptedConsole::new(&engine);
    album.add_screenshot("fleet", &show);
    show.press("?");
    album.add_screenshot("help", &show);
    show.press("Esc :");
    show.type_text("theme");
    album.add_screenshot("palette", &show);
    show.press("Esc 8");
    album.add_screenshot("hosts", &show);
    show.press("3 gg");
    album.add_screenshot("baselines", &show);
    show.press("Enter");
    album.add_screenshot("comparison", &show);
    show.press("4 /");
    show.type_text("carrier in:archive");
    show.press("Enter");
    album.add_screenshot("archives", &show);
    show.press("6 gg");
    album.add_screenshot("verify", &show);
    show.open_agent("researcher");
    show.press("Tab");
    album.add_screenshot("scratch", &show);
    show.open_agent("code-reviewer");
    show.press("Tab Tab Tab");
    album.add_screenshot("history", &show);
    show.press("Tab");
    album.add_screenshot("agent", &show);
    show.open_agent("carrier-scout");
    show.press("Tab h j l j");
    album.add_screenshot("memory", &show);
    show.press("Tab");
    album.add_screenshot("health", &show);
    show.press("q");
    for name in ["code-reviewer", "researcher", "monitor-bot"] {
        show.press("/");
        show.type_text(name);
        show.press("Enter Space Esc");
    }
    show.press("X");
    album.add_screenshot("plan", &show);
    show.type_text("reset 3");
    show.press("Enter");
    show.send_progress(2);
    album.add_screenshot("run", &show);
    show.send_progress(usize::MAX);
    show.observe_all();
    album.add_screenshot("result", &show);
    show.list_jobs(&["retention", "rules of code-reviewer"]);
    show.press("z");
    album.add_screenshot("undo", &show);
    show.press("Esc 7");
    album.add_screenshot("log", &show);
    album.assert_up_to_date();
}

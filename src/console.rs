//! The console: wiring. One thread owns the terminal and the model and runs
//! [`mod@update`] and the view; others read keys and signals, watch the fleet and
//! carry effects out. Nobody but that thread touches the screen, and it touches
//! nothing else.

pub mod chooser;
pub mod columns;
pub mod command;
mod effect;
pub mod filter;
pub mod kept;
pub mod keymap;
pub mod markdown;
pub mod model;
pub mod outside;
pub mod preferences;
mod source;
pub mod term;
pub mod text;
pub mod theme;
pub mod update;
pub mod view;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};
use crossbeam_channel::{Receiver, Sender, after, never, select, unbounded};
use crossterm::event::{self, Event as TerminalEvent, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::Signals;

use crate::config::{Config, Env, Protect};
use crate::demo::host::Host;
use crate::engine::{Address, Engine};
use crate::error::{Error, Kind, PathContext, Result};
use crate::transport::sftp::askpass::{self, Desk};
use effect::{Own, Runner};
pub use effect::{findings, runs};
use keymap::{Code, Key};
use model::{
    AgentScreen, Clip, Edit, FleetView, Handed, HostsScreen, Jobs, Level, LogScreen, Model, Moment,
    Page, Pending, ReadOnly, ResetScreen, Row, Screen, Sort,
};
use outside::{Change, Gate, Guest, Outside, Watched};
use preferences::Preferences;
use tempfile::NamedTempFile;
use term::{Abilities, Pace};
use theme::{Theme, Themes};
use update::hand::sentence;
use update::{Effect, Msg, next_wake, update};

/// How long background messages are taken in before the next look at the keys.
const BACKGROUND: Duration = Duration::from_millis(4);

/// How the console is started.
pub struct Options {
    /// The engine of the fleet.
    pub engine: Arc<Engine>,
    /// By `--read-only`.
    pub read_only: bool,
    /// By `--theme`; else the operator's or the config's.
    pub theme: Option<String>,
    /// `NO_COLOR` is set.
    pub no_color: bool,
    /// Started over SSH.
    pub over_ssh: bool,
    /// What the terminal can do.
    pub abilities: Abilities,
    /// For reading a changed config.
    pub env: Env,
    /// The operator's preferences, if there is a place for them.
    pub preferences: Option<PathBuf>,
    /// Where it is kept how the fleet is looked at; nowhere for one that is gone
    /// tomorrow.
    pub kept: Option<kept::Place>,
    /// The editor, the pager and the clipboard.
    pub outside: Outside,
    /// Something to say first.
    pub note: Option<String>,
    /// Where hosts ask, and what happens there.
    pub desk: (Desk, Receiver<askpass::Event>),
    /// Makes an engine for a changed config.
    pub rebuild: Box<dyn Fn(Config) -> Engine + Send>,
    /// The demo's host, which a key makes go away and come back.
    pub host: Option<Arc<Host>>,
}

/// A model of a fleet nothing of which was read yet.
pub fn first_model(config: &Config, moment: Moment, size: (u16, u16)) -> Model {
    let by_config = config.general.protect == Protect::ReadOnly;
    let row = |agent: &crate::config::Agent| Row {
        name: agent.name.clone(),
        address: Address::of(&agent.place),
        seen: None,
        known: None,
        remembered: None,
    };
    let mut model = Model {
        fleet: effect::info(config),
        rows: config.agents.iter().map(row).collect(),
        order: Vec::new(),
        cursor: None,
        cursor_moved: false,
        cursor_due: None,
        strip: None,
        strip_due: None,
        last_move: None,
        top: 0,
        marks: BTreeSet::new(),
        anchor: None,
        filter: String::new(),
        filter_kept: false,
        sort: Sort::default(),
        reverse: false,
        screen: Screen::Fleet,
        previous: None,
        back: Default::default(),
        agent: AgentScreen {
            wrap: true,
            context: Some(3),
            ..AgentScreen::default()
        },
        reset: ResetScreen::default(),
        log: LogScreen {
            messages: VecDeque::new(),
            ..LogScreen::default()
        },
        hosts: HostsScreen::default(),
        wanted: None,
        jobs: Jobs::default(),
        overlay: None,
        questions: Vec::new(),
        prompt: None,
        pending: Pending::default(),
        preferences: Preferences::default(),
        preferences_error: None,
        kept: FleetView::default(),
        trends: HashMap::new(),
        message: None,
        read_only: ReadOnly {
            on: by_config,
            by_config,
            ..ReadOnly::default()
        },
        config_error: None,
        ledger_error: None,
        size,
        dirty: true,
        now: moment,
        word_marks: false,
        themes: Themes::default().names(),
        request: 0,
        waiting: false,
        ages: Vec::new(),
        host_away: None,
    };
    let names: Vec<String> = model.rows.iter().map(|row| row.name.clone()).collect();
    model.jobs.read(&names, moment);
    model.arrange();
    model
}

/// Opens the console and returns when it is left. Answers whether a signal or the
/// end of the terminal ended it.
///
/// # Errors
/// A theme that does not exist, or a terminal that cannot be used.
pub fn run(options: Options) -> Result<bool> {
    let config = options.engine.config();
    let (preferences, problems) = match &options.preferences {
        Some(path) => preferences::load(path),
        None => Default::default(),
    };
    let folder = options.env.config_folder();
    let folder = folder.map(|folder| folder.join(theme::FOLDER));
    let themes = Themes::new(folder, options.abilities.depth);
    let chosen = Chosen {
        flag: options.theme,
        no_color: options.no_color,
        config: config.general.theme.clone(),
    };
    let theme = chosen.theme(&themes, &preferences)?;
    let began = Began::now(&options.engine);
    let mut screen = term::Screen::enter(options.abilities)?;
    let mut model = first_model(config, began.moment(&options.engine), screen.size());
    model.word_marks = theme.word_marks();
    // Two sides cost twice the bytes for each line that is moved by.
    model.agent.unified = options.over_ssh;
    model.themes = themes.names();
    model.read_only.forced = options.read_only;
    model.host_away = options.host.as_ref().map(|host| host.is_away());
    if let Some(note) = &options.note {
        model.say(Level::Info, note.clone());
    }
    for warning in &config.warnings {
        model.say(Level::Warn, warning.to_string().replace('\n', " "));
    }
    model.complain(&problems);
    model.preferences = preferences.clone();
    let loaded = (preferences, problems);
    let keeper = options.kept.map(|place| (place.read(), place));
    match keeper.as_ref().map(|(view, _)| view) {
        Some(Ok(Some(view))) => model.look_again(view.clone()),
        Some(Err(error)) => model.say(Level::Warn, kept::forgotten(error)),
        Some(Ok(None)) | None => {}
    }
    let (input, gate) = read_input()?;
    let engine = Arc::clone(&options.engine);
    let (runner, inbox) = Runner::start(
        options.engine,
        options.desk,
        options.env,
        options.rebuild,
        options.host,
        Own {
            preferences: options.preferences.map(|path| (path, loaded)),
            kept: keeper.map(|(_, place)| place),
        },
    );
    let mut console = Console {
        clock: (engine, began),
        model,
        theme,
        themes,
        chosen,
        runner,
        pace: Pace::new(options.over_ssh),
        keyed: false,
        new_config: None,
        interrupted: false,
        outside: options.outside,
        gate,
        lent: None,
    };
    console
        .handle(vec![Effect::LoadLog], &mut screen)
        .map_err(|error| gone(&error))?;
    let result = console.turn(&mut screen, &input, &inbox);
    // The terminal goes back first: a run may still have an agent in hand.
    drop(console.lent.take());
    drop(screen);
    let seen: Vec<_> = console
        .model
        .rows
        .into_iter()
        .filter_map(|row| row.last_read().or(row.seen.as_ref()).cloned())
        .collect();
    console.runner.end(inbox, &seen);
    result.map_err(|error| gone(&error))?;
    Ok(console.interrupted)
}

/// What decides the theme, beside the preferences.
struct Chosen {
    flag: Option<String>,
    no_color: bool,
    config: String,
}

impl Chosen {
    fn theme(&self, themes: &Themes, preferences: &Preferences) -> Result<Theme> {
        let own = preferences.theme.as_ref();
        themes.load(match (&self.flag, self.no_color) {
            (Some(name), _) => name,
            (None, true) => theme::MONO,
            (None, false) => own.unwrap_or(&self.config),
        })
    }
}

fn gone(error: &io::Error) -> Error {
    let message = format!("the terminal is gone: {}", crate::error::cause(error));
    Error::new(Kind::Interrupted, message)
}

/// When the console began.
struct Began(Instant);

impl Began {
    fn now(engine: &Engine) -> Began {
        Began(engine.clock().instant())
    }

    fn moment(&self, engine: &Engine) -> Moment {
        let wall: DateTime<FixedOffset> = engine.clock().now();
        Moment {
            since: engine.clock().instant().duration_since(self.0),
            wall,
        }
    }
}

/// What comes from outside.
enum Input {
    Terminal(TerminalEvent),
    Signal(i32),
    Gone,
}

struct Console {
    clock: (Arc<Engine>, Began),
    model: Model,
    theme: Theme,
    themes: Themes,
    chosen: Chosen,
    runner: Runner,
    pace: Pace,
    /// A key waits for its frame.
    keyed: bool,
    /// A changed config that is not in force yet.
    new_config: Option<Box<Config>>,
    /// Whether it was not the operator's key that ended it.
    interrupted: bool,
    outside: Outside,
    gate: Gate,
    /// Who has the terminal meanwhile. Everything but the screen goes on.
    lent: Option<Lent>,
}

/// A program that has the terminal, and what for.
struct Lent {
    guest: Guest,
    purpose: Purpose,
}

enum Purpose {
    Edit(Box<Edit>),
    /// The text is removed with this.
    Read(NamedTempFile),
}

impl Purpose {
    /// The noun for the program.
    fn program(&self) -> &'static str {
        match self {
            Purpose::Edit(_) => "editor",
            Purpose::Read(_) => "pager",
        }
    }
}

impl Console {
    /// The loop: keys first, then a little of what happened in the background,
    /// then a frame if something changed.
    fn turn(
        &mut self,
        screen: &mut term::Screen,
        input: &Receiver<Input>,
        inbox: &Receiver<Msg>,
    ) -> io::Result<()> {
        self.draw(screen)?;
        loop {
            let now = self.moment().since;
            let mut wait = next_wake(&self.model).saturating_sub(now);
            if self.model.dirty && self.lent.is_none() {
                wait = wait.min(self.until_frame());
            }
            let mut first = None;
            let lent = self.lent.as_ref();
            let changes = lent.map_or_else(never, |lent| lent.guest.changes().clone());
            select! {
                recv(changes) -> change => self.guest_changed(change.ok(), screen)?,
                recv(input) -> event => first = Some(event.unwrap_or(Input::Gone)),
                recv(inbox) -> msg => {
                    if let Ok(msg) = msg {
                        if !self.take(msg, screen)? {
                            return Ok(());
                        }
                        if !self.take_background(inbox, screen)? {
                            return Ok(());
                        }
                    }
                },
                recv(after(wait)) -> _ => {
                    if !self.take(Msg::Tick, screen)? {
                        return Ok(());
                    }
                }
            }
            // All input is taken in before anything is drawn, so that a held
            // key stops when it is let go.
            let events: Vec<Input> = first.into_iter().chain(input.try_iter()).collect();
            if !events.is_empty() {
                self.keyed = true;
                if !self.take_input(events, screen)? {
                    return Ok(());
                }
            }
            if !self.model.dirty {
                self.keyed = false;
            } else if self.lent.is_none() && self.until_frame() == Duration::ZERO {
                self.draw(screen)?;
            }
        }
    }

    fn take_background(
        &mut self,
        inbox: &Receiver<Msg>,
        screen: &mut term::Screen,
    ) -> io::Result<bool> {
        let end = self.moment().since + BACKGROUND;
        while self.moment().since < end {
            let Ok(msg) = inbox.try_recv() else { break };
            if !self.take(msg, screen)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn take_input(&mut self, events: Vec<Input>, screen: &mut term::Screen) -> io::Result<bool> {
        let mut keys = Vec::new();
        for event in events {
            let msg = match event {
                // It was typed before the guest came, and meant for it.
                Input::Terminal(_) if self.lent.is_some() => continue,
                Input::Terminal(TerminalEvent::Key(key)) if key.kind != KeyEventKind::Release => {
                    keys.extend(translate(key));
                    continue;
                }
                Input::Terminal(TerminalEvent::Paste(text)) => Msg::Paste(text),
                // The library loses a change of size that comes together with a
                // key, so the signal is listened to instead; what counts is the
                // size now. It may be the one before, with another in between that
                // cut what was shown.
                Input::Signal(SIGWINCH) => {
                    screen.forget();
                    Msg::Resize(screen.size().0, screen.size().1)
                }
                // There is nothing to give and to take.
                Input::Signal(SIGTSTP | SIGCONT) if self.lent.is_some() => continue,
                Input::Signal(SIGTSTP) => {
                    screen.suspend()?;
                    Msg::Resize(screen.size().0, screen.size().1)
                }
                Input::Signal(SIGCONT) => {
                    screen.resume()?;
                    Msg::Resize(screen.size().0, screen.size().1)
                }
                Input::Signal(_) | Input::Gone => {
                    self.interrupted = true;
                    Msg::Quit
                }
                Input::Terminal(_) => continue,
            };
            if !keys.is_empty() && !self.take(Msg::Keys(std::mem::take(&mut keys)), screen)? {
                return Ok(false);
            }
            if !self.take(msg, screen)? {
                return Ok(false);
            }
        }
        match keys.is_empty() {
            true => Ok(true),
            false => self.take(Msg::Keys(keys), screen),
        }
    }

    /// Takes one message in; false when it is time to leave.
    fn take(&mut self, msg: Msg, screen: &mut term::Screen) -> io::Result<bool> {
        match msg {
            Msg::ConfigChanged => self.runner.read_config(),
            Msg::ConfigRead(config) => self.new_config = Some(config),
            msg => {
                // A theme in them is one that there is. Another key takes nobody's
                // chosen theme off.
                if let Msg::Preferences(preferences) = &msg
                    && preferences.theme != self.model.preferences.theme
                    && let Ok(theme) = self.chosen.theme(&self.themes, preferences)
                {
                    self.model.word_marks = theme.word_marks();
                    self.theme = theme;
                    screen.forget();
                }
                let moment = self.moment();
                let effects = update(&mut self.model, moment, msg);
                if !self.handle(effects, screen)? {
                    return Ok(false);
                }
            }
        }
        // A run in progress keeps the config that it began with.
        match self.new_config.take_if(|_| !self.model.is_running()) {
            Some(config) => {
                let msg = self.runner.take_config(*config);
                let moment = self.moment();
                let effects = update(&mut self.model, moment, msg);
                self.handle(effects, screen)
            }
            None => Ok(true),
        }
    }

    fn handle(&mut self, effects: Vec<Effect>, screen: &mut term::Screen) -> io::Result<bool> {
        let mut stay = true;
        for effect in effects {
            match effect {
                Effect::Quit => stay = false,
                Effect::Suspend => {
                    screen.suspend()?;
                    let (columns, rows) = screen.size();
                    update(
                        &mut self.model,
                        self.clock.1.moment(&self.clock.0),
                        Msg::Resize(columns, rows),
                    );
                }
                Effect::Theme(name) => {
                    self.wear(&name);
                    // Its ground may be another.
                    screen.forget();
                    self.model.dirty = true;
                }
                Effect::Redraw => {
                    screen.forget();
                    self.model.dirty = true;
                }
                Effect::Copy(clip) => match self.outside.copiers() {
                    copiers if copiers.is_empty() => self.copy_by_terminal(clip, screen)?,
                    copiers => self.runner.copy(copiers, clip),
                },
                Effect::CopyByTerminal(clip) => self.copy_by_terminal(clip, screen)?,
                Effect::Edit(edit) => self.lend(Ok(Purpose::Edit(edit)), screen)?,
                Effect::Page(page) => {
                    let file = self.write_page(&page);
                    self.lend(file.map(Purpose::Read), screen)?;
                }
                effect => self.runner.carry_out(effect),
            }
        }
        Ok(stay)
    }

    fn copy_by_terminal(&mut self, clip: Clip, screen: &mut term::Screen) -> io::Result<()> {
        let handed = match screen.copy(&clip.text, self.outside.multiplexer)? {
            true => Handed::Terminal,
            false => Handed::TooLong(term::CLIPBOARD),
        };
        self.tell(Msg::Copied(clip, handed));
        Ok(())
    }

    /// Tells the model of something that asks for nothing.
    fn tell(&mut self, msg: Msg) {
        let moment = self.moment();
        update(&mut self.model, moment, msg);
    }

    /// A text in a file that only the operator can read.
    fn write_page(&self, page: &Page) -> Result<NamedTempFile> {
        let folder = &self.outside.temp;
        // Names of the ledger's are nobody's to trust.
        let name = page.name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let mut file = tempfile::Builder::new()
            .prefix(&format!("{name}-"))
            .suffix(".txt")
            .tempfile_in(folder)
            .path("write a text for the pager in", folder)?;
        let path = file.path().to_path_buf();
        file.write_all(page.text.as_bytes()).path("write", &path)?;
        Ok(file)
    }

    /// Gives the terminal to the editor or the pager.
    fn lend(&mut self, purpose: Result<Purpose>, screen: &mut term::Screen) -> io::Result<()> {
        let failed = |error: Error| Msg::Note(Level::Error, sentence(&error));
        let purpose = match purpose {
            Ok(purpose) if self.lent.is_none() => purpose,
            Ok(_) => return Ok(()),
            Err(error) => {
                self.tell(failed(error));
                return Ok(());
            }
        };
        if !self.gate.close() {
            let text = "half a key has come and is waited for: press it again";
            self.tell(Msg::Note(Level::Warn, text.to_string()));
            return Ok(());
        }
        screen.lend();
        match self.start(&purpose) {
            Ok(guest) => self.lent = Some(Lent { guest, purpose }),
            Err(error) => {
                self.take_back(screen)?;
                self.tell(failed(error));
            }
        }
        Ok(())
    }

    fn start(&self, purpose: &Purpose) -> Result<Guest> {
        let what = purpose.program();
        match purpose {
            Purpose::Edit(edit) => {
                Guest::start(what, &self.outside.editors()?, &edit.before.path, &[])
            }
            Purpose::Read(file) => {
                // Neither another program nor another file is opened from there,
                // and a short text does not vanish at once.
                let variables = [("LESSSECURE", "1"), ("LESS", "")];
                Guest::start(what, &self.outside.pagers()?, file.path(), &variables)
            }
        }
    }

    /// The program that has the terminal was stopped, or has ended.
    fn guest_changed(
        &mut self,
        change: Option<Change>,
        screen: &mut term::Screen,
    ) -> io::Result<()> {
        let Some(Lent { guest, purpose }) = self.lent.take() else {
            return Ok(());
        };
        if change == Some(Change::Stopped) {
            guest.stop_with_it()?;
            self.lent = Some(Lent { guest, purpose });
            return Ok(());
        }
        let ended = guest.ended();
        self.take_back(screen)?;
        let why = match ended {
            Ok(status) if status.success() => None,
            Ok(status) => Some(outside::how(status)),
            Err(error) => Some(crate::error::cause(&error)),
        };
        if let Some(why) = why {
            let text = format!("the {}: {why}", purpose.program());
            self.tell(Msg::Note(Level::Warn, text));
        }
        if let Purpose::Edit(edit) = purpose {
            self.runner.edited(edit);
        }
        Ok(())
    }

    /// Takes the terminal, and reads keys again.
    fn take_back(&mut self, screen: &mut term::Screen) -> io::Result<()> {
        screen.resume()?;
        self.gate.open();
        let (columns, rows) = screen.size();
        self.tell(Msg::Resize(columns, rows));
        Ok(())
    }

    fn draw(&mut self, screen: &mut term::Screen) -> io::Result<()> {
        let bytes = screen.draw(&self.model, &self.theme)?;
        self.model.dirty = false;
        self.keyed = false;
        self.pace.drew(self.moment().since, bytes);
        Ok(())
    }

    fn until_frame(&self) -> Duration {
        self.pace.wait(self.moment().since, self.keyed)
    }

    /// Wears another theme, read anew: who writes one wants to see what it became.
    fn wear(&mut self, name: &str) {
        match self.themes.load(name) {
            Ok(theme) => {
                self.model.word_marks = theme.word_marks();
                self.theme = theme;
                self.model.say(Level::Info, format!("theme {name}"));
            }
            Err(error) => {
                // The first is said last, and so stays on the screen.
                for told in self.themes.told(&error).into_iter().rev() {
                    self.model.say(Level::Error, told);
                }
            }
        }
        self.model.themes = self.themes.names();
    }

    fn moment(&self) -> Moment {
        self.clock.1.moment(&self.clock.0)
    }
}

/// Reads keys and signals and notices when the terminal goes, each in a thread
/// of its own.
fn read_input() -> Result<(Receiver<Input>, Gate)> {
    let (sender, receiver) = unbounded();
    let failed = |error: io::Error| {
        Error::io(
            "watch for signals in",
            std::path::Path::new("this process"),
            &error,
        )
    };
    let signals = [SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH];
    let mut signals = Signals::new(signals).map_err(failed)?;
    let out = sender.clone();
    thread::spawn(move || {
        for signal in signals.forever() {
            if out.send(Input::Signal(signal)).is_err() {
                return;
            }
        }
    });
    let out = sender.clone();
    thread::spawn(move || {
        term::wait_until_gone();
        let _ = out.send(Input::Gone);
    });
    let (gate, watched) = outside::gate();
    thread::spawn(move || watch_terminal(&sender, &watched));
    Ok((receiver, gate))
}

fn watch_terminal(sender: &Sender<Input>, gate: &Watched) {
    loop {
        let input = match event::read() {
            Ok(event) => Input::Terminal(event),
            Err(_) => Input::Gone,
        };
        // What was typed while the gate closed was meant for who comes.
        if gate.pass() && !matches!(input, Input::Gone) {
            continue;
        }
        let gone = matches!(input, Input::Gone);
        if sender.send(input).is_err() || gone {
            return;
        }
    }
}

/// A key of the terminal library as ours; none for keys that mean nothing here.
///
/// A terminal sends Alt as Escape before the key, so Escape and another key
/// that come together over a slow line look the same. Nothing is bound to Alt:
/// it is taken for the two keys.
fn translate(key: event::KeyEvent) -> Vec<Key> {
    let alt = key.modifiers.contains(KeyModifiers::ALT);
    let code = match key.code {
        KeyCode::Char(c) => Code::Char(c),
        KeyCode::Enter => Code::Enter,
        KeyCode::Esc => Code::Esc,
        KeyCode::Tab => Code::Tab,
        KeyCode::BackTab => Code::BackTab,
        KeyCode::Backspace => Code::Backspace,
        KeyCode::Up => Code::Up,
        KeyCode::Down => Code::Down,
        KeyCode::Left => Code::Left,
        KeyCode::Right => Code::Right,
        KeyCode::PageUp => Code::PageUp,
        KeyCode::PageDown => Code::PageDown,
        KeyCode::Home => Code::Home,
        KeyCode::End => Code::End,
        KeyCode::F(number) => Code::F(number),
        _ => return Vec::new(),
    };
    let key = Key {
        code,
        ctrl: key.modifiers.contains(KeyModifiers::CONTROL),
    };
    match alt {
        true => vec![Key::plain(Code::Esc), key],
        false => vec![key],
    }
}

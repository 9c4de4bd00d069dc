//! The console: wiring. One thread owns the terminal and the model and runs
//! [`mod@update`] and the view; others read keys and signals, watch the fleet and
//! carry effects out. Nobody but that thread touches the screen, and it touches
//! nothing else.

pub mod chooser;
pub mod columns;
pub mod command;
mod effect;
pub mod filter;
mod input;
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
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, after, never, select, unbounded};
use crossterm::event::{Event as TerminalEvent, KeyEventKind};
use signal_hook::consts::{SIGCONT, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};

use crate::clock::Clock;
use crate::config::{Config, Env, Protect};
use crate::demo::host::Host;
use crate::engine::{Address, Engine};
use crate::error::{Error, Kind, Result};
use crate::transport::sftp::askpass::{self, PromptBroker};
use effect::{EffectRunner, Loaded, LoadedTheme, RunHandle, UserFiles, told};
pub use effect::{Rebuild, findings, runs};
use input::Input;
use model::{
    AgentRow, AgentScreen, BackgroundJobs, ClipboardText, CopyOutcome, Edit, FleetView,
    HostsScreen, LogScreen, MessageLevel, Model, Moment, PendingKeys, ReadOnly, ResetScreen,
    Screen, Sort,
};
use outside::{ChildChange, ExternalTools, ForegroundChild, InputPause};
use preferences::Preferences;
use tempfile::NamedTempFile;
use term::{FrameRate, TerminalFeatures};
use theme::{Theme, Themes};
use update::hand::sentence;
use update::{Effect, Msg, next_wake, update};

/// How long background messages are taken in before the next look at the keys.
const MAX_BACKGROUND_TIME: Duration = Duration::from_millis(4);

/// How long who reads keys may take to stop.
const READER_STOP_TIMEOUT: Duration = Duration::from_secs(5);

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
    pub abilities: TerminalFeatures,
    /// For reading a changed config.
    pub env: Env,
    /// The operator's preferences, if there is a place for them.
    pub preferences: Option<PathBuf>,
    /// Where it is kept how the fleet is looked at; nowhere for one that is gone
    /// tomorrow.
    pub kept: Option<kept::ViewStateFile>,
    /// The editor, the pager and the clipboard.
    pub outside: ExternalTools,
    /// Something to say first.
    pub note: Option<String>,
    /// Where hosts ask, and what happens there.
    pub desk: (PromptBroker, Receiver<askpass::Event>),
    /// Makes an engine for a changed config.
    pub rebuild: Rebuild,
    /// The demo's host, which a key makes go away and come back.
    pub host: Option<Arc<Host>>,
}

/// A model of a fleet nothing of which was read yet.
pub fn first_model(config: &Config, moment: Moment, size: (u16, u16)) -> Model {
    let by_config = config.general.protect == Protect::ReadOnly;
    let row = |agent: &crate::config::Agent| AgentRow {
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
        jobs: BackgroundJobs::default(),
        overlay: None,
        questions: Vec::new(),
        given_up: Default::default(),
        prompt: None,
        pending: PendingKeys::default(),
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
    let folder = folder.map(|folder| folder.join(theme::THEMES_DIRECTORY));
    let themes = Themes::new(folder, options.abilities.depth);
    let chosen = Chosen {
        flag: options.theme,
        no_color: options.no_color,
        config: config.general.theme.clone(),
    };
    let theme = themes.load(chosen.name(&preferences))?;
    let names = themes.names();
    let keeper = options.kept.map(|place| (place.read(), place));
    let clock = ConsoleClock::now(options.engine.shared_clock());
    // From here on nothing ends this before the terminal is given back, so all that
    // may take a while is done.
    let (typed, input) = unbounded();
    input::watch_signals(&typed)?;
    let mut screen = term::TerminalScreen::enter(options.abilities)?;
    let mut model = first_model(config, clock.moment(), screen.size());
    model.word_marks = theme.word_marks();
    // Two sides cost twice the bytes for each line that is moved by.
    model.agent.unified = options.over_ssh;
    model.themes = names;
    model.read_only.forced = options.read_only;
    model.host_away = options.host.as_ref().map(|host| host.is_away());
    if let Some(note) = &options.note {
        model.say(MessageLevel::Info, note.clone());
    }
    for warning in &config.warnings {
        model.say(MessageLevel::Warn, warning.to_string().replace('\n', " "));
    }
    model.complain(&problems);
    model.preferences = preferences.clone();
    let loaded = (preferences, problems);
    match keeper.as_ref().map(|(view, _)| view) {
        Some(Ok(Some(view))) => model.look_again(view.clone()),
        Some(Err(error)) => model.say(MessageLevel::Warn, kept::forgotten(error)),
        Some(Ok(None)) | None => {}
    }
    let gate = input::read_terminal(typed);
    let (runner, inbox) = EffectRunner::start(
        options.engine,
        options.desk,
        options.env,
        options.rebuild,
        options.host,
        UserFiles {
            preferences: options.preferences.map(|path| (path, loaded)),
            kept: keeper.map(|(_, place)| place),
        },
    );
    let mut console = Console {
        clock,
        model,
        theme,
        themes,
        chosen,
        runner,
        pace: FrameRate::new(options.over_ssh),
        keyed: false,
        pages: 0,
        paging: None,
        interrupted: false,
        outside: options.outside,
        gate,
        coming: None,
        lent: None,
    };
    console
        .handle(vec![Effect::LoadLog], &mut screen)
        .map_err(|error| gone(&error))?;
    let result = console.event_loop(&mut screen, &input, &inbox);
    // The terminal goes back first: a run may still have an agent in hand.
    drop(console.lent.take());
    drop(screen);
    let seen: Vec<_> = console
        .model
        .rows
        .into_iter()
        .filter_map(|row| row.last_read().or(row.seen.as_ref()).cloned())
        .collect();
    let wait = |run: &RunHandle| wait_for_run(run, &input, &mut io::stderr());
    let waited = console.runner.end(inbox, &seen, wait);
    result.map_err(|error| gone(&error))?;
    Ok(console.interrupted || !waited)
}

/// What decides the theme, beside the preferences.
struct Chosen {
    flag: Option<String>,
    no_color: bool,
    config: String,
}

impl Chosen {
    fn name<'a>(&'a self, preferences: &'a Preferences) -> &'a str {
        let own = preferences.theme.as_ref();
        match (&self.flag, self.no_color) {
            (Some(name), _) => name,
            (None, true) => theme::MONO,
            (None, false) => own.unwrap_or(&self.config),
        }
    }
}

fn gone(error: &io::Error) -> Error {
    let message = format!("the terminal is gone: {}", crate::error::cause(error));
    Error::new(Kind::Interrupted, message)
}

/// The time, and when the console began.
struct ConsoleClock(Arc<dyn Clock>, Instant);

impl ConsoleClock {
    fn now(clock: Arc<dyn Clock>) -> ConsoleClock {
        let began = clock.instant();
        ConsoleClock(clock, began)
    }

    fn moment(&self) -> Moment {
        Moment {
            since: self.0.instant().duration_since(self.1),
            wall: self.0.now(),
        }
    }
}

struct Console {
    clock: ConsoleClock,
    model: Model,
    theme: Theme,
    themes: Themes,
    chosen: Chosen,
    runner: EffectRunner,
    pace: FrameRate,
    /// A key waits for its frame.
    keyed: bool,
    /// How many texts were asked for, to tell one from another.
    pages: u64,
    /// The one that is on its way to the pager; any key stops it.
    paging: Option<u64>,
    /// Whether it was not the operator's key that ended it.
    interrupted: bool,
    outside: ExternalTools,
    gate: InputPause,
    /// What the terminal is about to be given away for, and how long it is waited
    /// for who reads keys.
    coming: Option<(Purpose, Duration)>,
    /// Who has the terminal meanwhile. Everything but the screen goes on.
    lent: Option<ForegroundProgram>,
}

/// A program that has the terminal, and what for.
struct ForegroundProgram {
    guest: ForegroundChild,
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
    fn event_loop(
        &mut self,
        screen: &mut term::TerminalScreen,
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
            let closed = self.coming.as_ref();
            let closed = closed.map_or_else(never, |(_, end)| {
                wait = wait.min(end.saturating_sub(now));
                self.gate.closed().clone()
            });
            let (news, brought) = (self.runner.news().clone(), self.runner.brought().clone());
            select! {
                recv(changes) -> change => self.guest_changed(change.ok(), screen)?,
                recv(input) -> event => first = Some(event.unwrap_or(Input::Gone)),
                recv(closed) -> _ => self.give(screen)?,
                recv(brought) -> brought => {
                    if let Ok(brought) = brought {
                        self.apply_loaded(brought, screen);
                    }
                },
                recv(news) -> event => {
                    let msg = event.ok().map(told);
                    if !self.take_background(msg, inbox, screen)? {
                        return Ok(());
                    }
                },
                recv(inbox) -> msg => {
                    if !self.take_background(msg.ok(), inbox, screen)? {
                        return Ok(());
                    }
                },
                recv(after(wait)) -> _ => {
                    if !self.take(Msg::Tick, screen)? {
                        return Ok(());
                    }
                }
            }
            self.give_up_late();
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

    /// Takes in what came, and for a moment what comes behind it.
    fn take_background(
        &mut self,
        first: Option<Msg>,
        inbox: &Receiver<Msg>,
        screen: &mut term::TerminalScreen,
    ) -> io::Result<bool> {
        let end = self.moment().since + MAX_BACKGROUND_TIME;
        let mut next = first;
        while let Some(msg) = next {
            if !self.take(msg, screen)? {
                return Ok(false);
            }
            next = match self.moment().since < end {
                true => self.next_message(inbox),
                false => None,
            };
        }
        Ok(true)
    }

    fn next_message(&self, inbox: &Receiver<Msg>) -> Option<Msg> {
        let news = || self.runner.news().try_recv().ok().map(told);
        inbox.try_recv().ok().or_else(news)
    }

    fn take_input(
        &mut self,
        events: Vec<Input>,
        screen: &mut term::TerminalScreen,
    ) -> io::Result<bool> {
        let mut keys = Vec::new();
        for event in events {
            let msg = match event {
                // It was typed before the guest came, and meant for it.
                Input::Terminal(_) if self.is_away() => continue,
                Input::Terminal(TerminalEvent::Key(key)) if key.kind != KeyEventKind::Release => {
                    self.paging = None;
                    keys.extend(term::translate(key));
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
    fn take(&mut self, msg: Msg, screen: &mut term::TerminalScreen) -> io::Result<bool> {
        if let Some(msg) = self.runner.intercept(msg) {
            // A theme in them is one that there is. Another key takes nobody's
            // chosen theme off.
            if let Msg::Preferences(preferences) = &msg
                && preferences.theme != self.model.preferences.theme
            {
                let name = self.chosen.name(preferences);
                self.runner.theme(&self.themes, name, false);
            }
            let effects = update(&mut self.model, self.clock.moment(), msg);
            if !self.handle(effects, screen)? {
                return Ok(false);
            }
        }
        // A run in progress keeps the config that it began with.
        let running = self.model.is_running();
        let Some(msg) = (!running).then(|| self.runner.adopt_config()).flatten() else {
            return Ok(true);
        };
        let worn = self.chosen.name(&self.model.preferences).to_string();
        self.chosen.config = self.runner.fleets_theme().to_string();
        let name = self.chosen.name(&self.model.preferences);
        if name != worn {
            self.runner.theme(&self.themes, name, false);
        }
        let effects = update(&mut self.model, self.clock.moment(), msg);
        self.handle(effects, screen)
    }

    fn handle(
        &mut self,
        effects: Vec<Effect>,
        screen: &mut term::TerminalScreen,
    ) -> io::Result<bool> {
        let mut stay = true;
        for effect in effects {
            match effect {
                Effect::Quit => stay = false,
                Effect::Suspend => {
                    screen.suspend()?;
                    let (columns, rows) = screen.size();
                    self.tell(Msg::Resize(columns, rows));
                }
                Effect::Theme(name) => self.runner.theme(&self.themes, &name, true),
                Effect::Redraw => {
                    screen.forget();
                    self.model.dirty = true;
                }
                Effect::Copy(clip) => match self.outside.copiers() {
                    copiers if copiers.is_empty() => self.copy_by_terminal(clip, screen)?,
                    copiers => self.runner.copy(copiers, clip),
                },
                Effect::CopyByTerminal(clip) => self.copy_by_terminal(clip, screen)?,
                Effect::Edit(edit) => self.lend(Ok(Purpose::Edit(edit))),
                Effect::Page(page) => {
                    self.pages += 1;
                    self.paging = Some(self.pages);
                    self.runner.page(self.pages, &self.outside.temp, page);
                }
                effect => self.runner.carry_out(effect),
            }
        }
        Ok(stay)
    }

    fn copy_by_terminal(
        &mut self,
        clip: ClipboardText,
        screen: &mut term::TerminalScreen,
    ) -> io::Result<()> {
        let handed = match screen.copy(&clip.text, self.outside.multiplexer)? {
            true => CopyOutcome::Terminal,
            false => CopyOutcome::TooLong(term::MAX_CLIPBOARD_BYTES),
        };
        self.tell(Msg::Copied(clip, handed));
        Ok(())
    }

    /// Tells the model of something that asks for nothing.
    fn tell(&mut self, msg: Msg) {
        let moment = self.moment();
        update(&mut self.model, moment, msg);
    }

    /// A theme or a text that was asked for.
    fn apply_loaded(&mut self, brought: Loaded, screen: &mut term::TerminalScreen) {
        match brought {
            Loaded::Theme(worn) => {
                self.apply_theme(worn);
                // Its ground may be another.
                screen.forget();
                self.model.dirty = true;
            }
            Loaded::Page(number, file) if self.paging == Some(number) => {
                self.lend(file.map(Purpose::Read));
            }
            Loaded::Page(..) => {}
        }
    }

    /// Gives the terminal to the editor or the pager, once nobody reads keys.
    fn lend(&mut self, purpose: Result<Purpose>) {
        match purpose {
            Ok(_) if self.is_away() => {}
            Ok(purpose) => {
                self.gate.close();
                self.coming = Some((purpose, self.moment().since + READER_STOP_TIMEOUT));
            }
            Err(error) => self.tell(Msg::Note(MessageLevel::Error, sentence(&error))),
        }
    }

    /// Whether keys are another program's, or soon.
    fn is_away(&self) -> bool {
        self.lent.is_some() || self.coming.is_some()
    }

    /// Nobody reads keys now.
    fn give(&mut self, screen: &mut term::TerminalScreen) -> io::Result<()> {
        let Some((purpose, _)) = self.coming.take() else {
            return Ok(());
        };
        screen.lend();
        match self.start(&purpose) {
            Ok(guest) => self.lent = Some(ForegroundProgram { guest, purpose }),
            Err(error) => {
                self.take_back(screen)?;
                self.tell(Msg::Note(MessageLevel::Error, sentence(&error)));
            }
        }
        Ok(())
    }

    /// Gives the terminal to nobody, when who reads keys is in the middle of one.
    fn give_up_late(&mut self) {
        let now = self.moment().since;
        if self.coming.take_if(|(_, end)| *end <= now).is_some() {
            self.gate.open();
            let text = "half a key has come and is waited for: press it again";
            self.tell(Msg::Note(MessageLevel::Warn, text.to_string()));
        }
    }

    fn start(&self, purpose: &Purpose) -> Result<ForegroundChild> {
        let what = purpose.program();
        match purpose {
            Purpose::Edit(edit) => {
                ForegroundChild::start(what, &self.outside.editors()?, &edit.before.path, &[])
            }
            Purpose::Read(file) => {
                // Neither another program nor another file is opened from there,
                // and a short text does not vanish at once.
                let variables = [("LESSSECURE", "1"), ("LESS", "")];
                ForegroundChild::start(what, &self.outside.pagers()?, file.path(), &variables)
            }
        }
    }

    /// The program that has the terminal was stopped, or has ended.
    fn guest_changed(
        &mut self,
        change: Option<ChildChange>,
        screen: &mut term::TerminalScreen,
    ) -> io::Result<()> {
        let Some(ForegroundProgram { guest, purpose }) = self.lent.take() else {
            return Ok(());
        };
        if change == Some(ChildChange::Stopped) {
            guest.stop_with_it()?;
            self.lent = Some(ForegroundProgram { guest, purpose });
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
            self.tell(Msg::Note(MessageLevel::Warn, text));
        }
        if let Purpose::Edit(edit) = purpose {
            self.runner.edited(edit);
        }
        Ok(())
    }

    /// Takes the terminal, and reads keys again.
    fn take_back(&mut self, screen: &mut term::TerminalScreen) -> io::Result<()> {
        screen.resume()?;
        self.gate.open();
        let (columns, rows) = screen.size();
        self.tell(Msg::Resize(columns, rows));
        Ok(())
    }

    fn draw(&mut self, screen: &mut term::TerminalScreen) -> io::Result<()> {
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
    fn apply_theme(&mut self, worn: LoadedTheme) {
        match worn.theme {
            Ok(theme) => {
                self.model.word_marks = theme.word_marks();
                self.theme = theme;
                if worn.asked {
                    self.model
                        .say(MessageLevel::Info, format!("theme {}", worn.name));
                }
            }
            Err(told) if worn.asked => {
                // The first is said last, and so stays on the screen.
                for line in told.into_iter().rev() {
                    self.model.say(MessageLevel::Error, line);
                }
            }
            Err(_) => {}
        }
        self.model.themes = worn.names;
    }

    fn moment(&self) -> Moment {
        self.clock.moment()
    }
}

/// Waits for the end of a run, and says so where the screen was. False when the
/// operator ends the wait.
fn wait_for_run(run: &RunHandle, input: &Receiver<Input>, out: &mut dyn Write) -> bool {
    let text = "a run finishes the agents that it has in hand; ^C leaves it at once, and \
                the next run mends what it leaves half done";
    // The terminal may be gone; the run goes on all the same.
    let _ = writeln!(out, "{text}");
    loop {
        select! {
            // Nothing comes of it but its end.
            recv(run) -> _ => return true,
            recv(input) -> input => match input {
                Ok(Input::Signal(SIGINT | SIGTERM | SIGQUIT)) => return false,
                Ok(Input::Signal(SIGTSTP)) => {
                    let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
                }
                Ok(_) => {}
                Err(_) => return run.recv().is_err(),
            },
        }
    }
}

#[cfg(test)]
mod tests;

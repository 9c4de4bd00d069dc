//! The event loop: input first, then background messages, then a frame. Lends the terminal to the
//! editor and the pager.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, after, never, select};
use crossterm::event::{Event as TerminalEvent, KeyEventKind};
use signal_hook::consts::{SIGCONT, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};

use super::effect::{EffectRunner, Loaded, LoadedTheme, RunHandle};
use super::external_copy::ExternalCopy;
use super::external_tools::{ChildChange, ExternalTools, ForegroundChild, InputPause};
use super::input::InputEvent;
use super::terminal::{self, FramePacer, TerminalScreen};
use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::program::describe_exit;
use crate::base::temporary::{PrivateFile, TemporaryRoot};
use crate::console::handoff::{ClipboardText, CopyOutcome};
use crate::console::message::{Effect, Msg};
use crate::console::model::{Model, Moment};
use crate::console::preferences::Preferences;
use crate::console::requests::NumberedRequests;
use crate::console::screens::log;
use crate::console::screens::log::state::MessageLevel;
use crate::console::theme::{self, Theme, Themes};
use crate::console::update::{next_wake, update};
use crate::engine::OpenedBaseline;

/// Time budget for background messages before the loop checks for keys again.
const MAX_BACKGROUND_TIME: Duration = Duration::from_millis(4);

/// How long the first frame waits for the states of the last session: one frame with them costs less
/// than two, and over a slow link it comes earlier.
pub(in crate::console) const FIRST_FRAME_WAIT: Duration = Duration::from_millis(50);

/// Time in which an operator cannot have read a text: the output of a pager that ends by itself within
/// it, as `less -F` and `cat` do, stays on the screen.
const MIN_READING_TIME: Duration = Duration::from_secs(1);

/// Shown below the output of such a pager.
const RETURN_PROMPT: &str = "press any key to return to the console";

/// Time that the input thread has to pause.
const READER_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Sources of the theme other than the preferences.
pub(in crate::console) struct ThemeSources {
    pub(in crate::console) flag_theme: Option<String>,
    pub(in crate::console) is_color_disabled: bool,
    pub(in crate::console) config_theme: String,
}

impl ThemeSources {
    /// Returns the name of the theme: of the flag, else the one without colors if they are
    /// disabled, else of the preferences, else of the config.
    pub(in crate::console) fn theme_name<'a>(&'a self, preferences: &'a Preferences) -> &'a str {
        let own = preferences.theme.as_ref();
        match (&self.flag_theme, self.is_color_disabled) {
            (Some(name), _) => name,
            (None, true) => theme::MONOCHROME_THEME,
            (None, false) => own.unwrap_or(&self.config_theme),
        }
    }
}

fn terminal_lost_error(error: &io::Error) -> Error {
    let message = format!(
        "the terminal is gone: {}",
        crate::base::error::describe_io_error(error)
    );
    Error::new(ErrorKind::Interrupted, message)
}

/// Clock of the console, and the time of its start.
pub(in crate::console) struct ConsoleClock(Arc<dyn Clock>, Instant);

impl ConsoleClock {
    pub(in crate::console) fn new(clock: Arc<dyn Clock>) -> ConsoleClock {
        let began = clock.instant();
        ConsoleClock(clock, began)
    }

    pub(in crate::console) fn now(&self) -> Moment {
        Moment {
            elapsed: self.0.instant().duration_since(self.1),
            local_time: self.0.now(),
        }
    }
}

/// The console while it runs.
pub(in crate::console) struct Console {
    pub(in crate::console) clock: ConsoleClock,
    pub(in crate::console) model: Model,
    pub(in crate::console) theme: Theme,
    pub(in crate::console) themes: Themes,
    pub(in crate::console) theme_sources: ThemeSources,
    pub(in crate::console) runner: EffectRunner,
    pub(in crate::console) frame_pacer: FramePacer,
    /// Whether the operator waits for the next frame, which is then drawn sooner: since the last one,
    /// a key was pressed, the states of the last session were loaded, or the whole fleet was read.
    pub(in crate::console) is_frame_awaited: bool,
    /// When to draw the first frame without the states of the last session.
    pub(in crate::console) first_frame_due: Option<Duration>,
    /// Requests for the editor or the pager, for which a job prepares the file; any key cancels one.
    pub(in crate::console) requests: NumberedRequests,
    /// Whether a signal or the loss of the terminal ended the console.
    pub(in crate::console) is_interrupted: bool,
    pub(in crate::console) external_tools: ExternalTools,
    pub(in crate::console) temporary_root: TemporaryRoot,
    pub(in crate::console) input_pause: InputPause,
    /// Program that is about to get the terminal, and the deadline for the input thread to
    /// pause.
    pub(in crate::console) pending_handoff: Option<(ProgramPurpose, Duration)>,
    /// Program that has the terminal. Everything but drawing continues.
    pub(in crate::console) foreground_program: Option<ForegroundProgram>,
    /// Whether the output of a pager stays on the screen until a key is pressed.
    pub(in crate::console) is_return_awaited: bool,
}

/// Program that has the terminal, and its purpose.
pub(in crate::console) struct ForegroundProgram {
    child: ForegroundChild,
    purpose: ProgramPurpose,
    /// Time of its start, since that of the console.
    started: Duration,
}

/// Why a program gets the terminal.
pub(in crate::console) enum ProgramPurpose {
    /// The editor works on the copy.
    EditBaseline(Box<OpenedBaseline>, ExternalCopy),
    /// The file is removed when this is dropped.
    ReadText(PrivateFile),
}

impl ProgramPurpose {
    /// Returns the noun for messages.
    fn program_noun(&self) -> &'static str {
        match self {
            ProgramPurpose::EditBaseline(..) => "editor",
            ProgramPurpose::ReadText(_) => "pager",
        }
    }
}

impl Console {
    /// Runs until quit, restores the terminal and waits for a run in progress. Returns whether a
    /// signal or the loss of the terminal ended the console or that wait.
    pub(in crate::console) fn run(
        mut self,
        mut screen: TerminalScreen,
        input: &Receiver<InputEvent>,
        inbox: Receiver<Msg>,
    ) -> Result<bool> {
        let schedule = log::update::schedule::request(&mut self.model);
        let first = vec![Effect::LoadLog, schedule, Effect::FindDrafts];
        self.handle_effects(first, &mut screen)
            .map_err(|error| terminal_lost_error(&error))?;
        let result = self.event_loop(&mut screen, input, &inbox);
        // The terminal is restored first: a run may still finish its current agent.
        let lost_text = self.runner.finish_drafts(&self.temporary_root);
        let kept_copy = self.end_foreground_program();
        drop(screen);
        for text in lost_text.into_iter().chain(kept_copy) {
            // The terminal may be gone.
            let _ = writeln!(io::stderr(), "{text}");
        }
        let observations = self.model.observations_to_save();
        let wait =
            |work: &RunHandle, text: &str| wait_for_end(work, text, input, &mut io::stderr());
        let has_run_ended = self.runner.shut_down(inbox, observations, wait);
        result.map_err(|error| terminal_lost_error(&error))?;
        Ok(self.is_interrupted || !has_run_ended)
    }

    /// Runs until quit: handles input first, then background messages within their time
    /// budget, then draws a frame if the model is dirty.
    fn event_loop(
        &mut self,
        screen: &mut TerminalScreen,
        input: &Receiver<InputEvent>,
        inbox: &Receiver<Msg>,
    ) -> io::Result<()> {
        loop {
            let now = self.moment().elapsed;
            let mut wait = next_wake(&self.model).saturating_sub(now);
            if self.model.is_dirty && !self.is_screen_lent() {
                wait = wait.min(self.time_until_frame());
            }
            let mut first = None;
            let program = self.foreground_program.as_ref();
            let child_changes = program.map_or_else(never, |it| it.child.changes().clone());
            let handoff = self.pending_handoff.as_ref();
            let reader_paused = handoff.map_or_else(never, |(_, end)| {
                wait = wait.min(end.saturating_sub(now));
                self.input_pause.reader_paused().clone()
            });
            let (fleet_events, loaded) = (
                self.runner.fleet_events().clone(),
                self.runner.loaded().clone(),
            );
            select! {
                recv(child_changes) -> change => self.handle_child_change(change.ok(), screen)?,
                recv(input) -> event => first = Some(event.unwrap_or(InputEvent::TerminalLost)),
                recv(reader_paused) -> _ => self.hand_over_terminal(screen)?,
                recv(loaded) -> result => {
                    if let Ok(loaded) = result {
                        self.apply_loaded(loaded, screen);
                    }
                },
                recv(fleet_events) -> event => {
                    let msg = event.ok().map(Msg::Fleet);
                    if !self.apply_background_messages(msg, inbox, screen)? {
                        return Ok(());
                    }
                },
                recv(inbox) -> msg => {
                    if !self.apply_background_messages(msg.ok(), inbox, screen)? {
                        return Ok(());
                    }
                },
                recv(after(wait)) -> _ => {
                    if !self.apply_message(Msg::Tick, screen)? {
                        return Ok(());
                    }
                }
            }
            self.cancel_late_handoff();
            // All pending input is handled before a frame is drawn, so that scrolling stops
            // when a held key is released.
            let events: Vec<InputEvent> = first.into_iter().chain(input.try_iter()).collect();
            if !events.is_empty() {
                self.await_frame();
                if !self.apply_input(events, screen)? {
                    return Ok(());
                }
            }
            if !self.model.is_dirty {
                self.is_frame_awaited = false;
            } else if !self.is_screen_lent() && self.time_until_frame() == Duration::ZERO {
                self.draw(screen)?;
            }
        }
    }

    /// Applies a message, and those that follow it within [`MAX_BACKGROUND_TIME`]. Returns false to
    /// quit.
    fn apply_background_messages(
        &mut self,
        first: Option<Msg>,
        inbox: &Receiver<Msg>,
        screen: &mut TerminalScreen,
    ) -> io::Result<bool> {
        let end = self.moment().elapsed + MAX_BACKGROUND_TIME;
        let mut next = first;
        while let Some(msg) = next {
            if !self.apply_message(msg, screen)? {
                return Ok(false);
            }
            next = if self.moment().elapsed < end {
                self.next_message(inbox)
            } else {
                None
            };
        }
        Ok(true)
    }

    fn next_message(&self, inbox: &Receiver<Msg>) -> Option<Msg> {
        let next_event = || self.runner.fleet_events().try_recv().ok().map(Msg::Fleet);
        inbox.try_recv().ok().or_else(next_event)
    }

    /// Applies input; keys that follow each other are one message. Returns false to quit.
    fn apply_input(
        &mut self,
        events: Vec<InputEvent>,
        screen: &mut TerminalScreen,
    ) -> io::Result<bool> {
        let mut keys = Vec::new();
        for event in events {
            if self.is_return_awaited && is_end_of_return_prompt(&event) {
                self.is_return_awaited = false;
                self.reclaim_screen(screen)?;
                // The key is no command.
                if let InputEvent::Terminal(_) = event {
                    continue;
                }
            }
            let msg = match event {
                // Input typed before the handoff is meant for the other program.
                InputEvent::Terminal(_) if self.is_terminal_lent() => continue,
                InputEvent::Terminal(TerminalEvent::Key(key))
                    if key.kind != KeyEventKind::Release =>
                {
                    self.requests.is_pending = false;
                    keys.extend(terminal::keys_from_event(key));
                    continue;
                }
                InputEvent::Terminal(TerminalEvent::Paste(text)) => Msg::TextPasted(text),
                // crossterm loses a resize that arrives together with a key, so the signal
                // counts instead, with the current size. Even an unchanged size needs a
                // repaint: a smaller one in between may have cut the screen.
                InputEvent::Signal(SIGWINCH) => {
                    screen.invalidate();
                    Msg::Resized(screen.size().0, screen.size().1)
                }
                // The other program has the terminal.
                InputEvent::Signal(SIGTSTP | SIGCONT) if self.foreground_program.is_some() => {
                    continue;
                }
                InputEvent::Signal(SIGTSTP) => {
                    screen.suspend()?;
                    Msg::Resized(screen.size().0, screen.size().1)
                }
                InputEvent::Signal(SIGCONT) => {
                    screen.resume()?;
                    Msg::Resized(screen.size().0, screen.size().1)
                }
                InputEvent::Signal(_) | InputEvent::TerminalLost => {
                    self.is_interrupted = true;
                    Msg::Quit
                }
                InputEvent::Terminal(_) => continue,
            };
            if !keys.is_empty()
                && !self.apply_message(Msg::KeysPressed(std::mem::take(&mut keys)), screen)?
            {
                return Ok(false);
            }
            if !self.apply_message(msg, screen)? {
                return Ok(false);
            }
        }
        if keys.is_empty() {
            return Ok(true);
        }
        self.apply_message(Msg::KeysPressed(keys), screen)
    }

    /// Applies one message; returns false to quit.
    fn apply_message(&mut self, msg: Msg, screen: &mut TerminalScreen) -> io::Result<bool> {
        if matches!(msg, Msg::SavedObservationsLoaded(_)) {
            self.await_frame();
        }
        if let Some(msg) = self.runner.intercept(msg) {
            // A theme in valid preferences exists. A change of another setting keeps the
            // theme that the operator has chosen since.
            if let Msg::PreferencesLoaded(preferences) = &msg
                && preferences.theme != self.model.preferences.theme
            {
                let name = self.theme_sources.theme_name(preferences);
                self.runner.load_theme(&self.themes, name, false);
            }
            let is_read = self.model.rows.unread() == 0;
            self.follow_jobs();
            let effects = update(&mut self.model, self.clock.now(), msg);
            if !is_read && self.model.rows.unread() == 0 {
                self.await_frame();
            }
            if !self.handle_effects(effects, screen)? {
                return Ok(false);
            }
        }
        // A run in progress keeps its config.
        let is_running = self.model.reset.is_running();
        let Some(msg) = (!is_running).then(|| self.runner.adopt_config()).flatten() else {
            return Ok(true);
        };
        let current = self
            .theme_sources
            .theme_name(&self.model.preferences)
            .to_string();
        self.theme_sources.config_theme = self.runner.config_theme().to_string();
        let name = self.theme_sources.theme_name(&self.model.preferences);
        if name != current {
            self.runner.load_theme(&self.themes, name, false);
        }
        let effects = update(&mut self.model, self.clock.now(), msg);
        self.handle_effects(effects, screen)
    }

    /// Carries out effects on the terminal, and passes the others to the runner. Returns false to
    /// quit.
    fn handle_effects(
        &mut self,
        effects: Vec<Effect>,
        screen: &mut TerminalScreen,
    ) -> io::Result<bool> {
        let mut keeps_running = true;
        for effect in effects {
            match effect {
                Effect::Quit => keeps_running = false,
                Effect::Suspend => {
                    self.runner.write_draft();
                    screen.suspend()?;
                    let (columns, rows) = screen.size();
                    self.update_model(Msg::Resized(columns, rows));
                }
                Effect::LoadTheme(name) => self.runner.load_theme(&self.themes, &name, true),
                // The bell of a lent terminal would be taken for the other program's.
                Effect::RingBell if self.is_terminal_lent() => {}
                Effect::RingBell => screen.ring_bell()?,
                Effect::Redraw => {
                    screen.invalidate();
                    self.model.is_dirty = true;
                }
                Effect::CopyToClipboard(clip) => match self.external_tools.clipboard_commands() {
                    copiers if copiers.is_empty() => self.copy_through_terminal(clip, screen)?,
                    copiers => self.runner.copy_to_clipboard(copiers, clip),
                },
                Effect::CopyThroughTerminal(clip) => self.copy_through_terminal(clip, screen)?,
                Effect::OpenEditor(opened) => {
                    let number = self.requests.begin();
                    self.runner
                        .write_external_copy(number, &self.temporary_root, opened);
                }
                Effect::OpenPager(page) => {
                    let number = self.requests.begin();
                    self.runner.write_page(number, &self.temporary_root, page);
                }
                effect => self.runner.execute(effect),
            }
        }
        self.follow_jobs();
        Ok(keeps_running)
    }

    /// Tells the model which jobs have not ended.
    fn follow_jobs(&mut self) {
        let labels = self.runner.job_labels();
        let jobs = &mut self.model.background_jobs;
        jobs.follow_requests(labels, self.clock.now());
    }

    fn copy_through_terminal(
        &mut self,
        clip: ClipboardText,
        screen: &mut TerminalScreen,
    ) -> io::Result<()> {
        let multiplexer = self.external_tools.multiplexer;
        let outcome = if screen.copy_to_clipboard(&clip.text, multiplexer)? {
            CopyOutcome::SentToTerminal
        } else {
            CopyOutcome::TooLong(terminal::MAX_CLIPBOARD_BYTES)
        };
        self.update_model(Msg::ClipboardCopied(clip, outcome));
        Ok(())
    }

    /// Applies a message that has no effects.
    fn update_model(&mut self, msg: Msg) {
        let moment = self.moment();
        update(&mut self.model, moment, msg);
    }

    /// Applies a loaded theme, or opens a loaded text in the pager.
    fn apply_loaded(&mut self, loaded: Loaded, screen: &mut TerminalScreen) {
        match loaded {
            Loaded::Theme(loaded) => {
                self.apply_theme(loaded);
                // The background may differ.
                screen.invalidate();
                self.model.is_dirty = true;
            }
            Loaded::Page(number, file) if self.requests.accept(number) => {
                self.request_handoff(file.map(ProgramPurpose::ReadText));
            }
            Loaded::ExternalCopy(number, opened, copy) if self.requests.accept(number) => {
                self.request_handoff(copy.map(|copy| ProgramPurpose::EditBaseline(opened, copy)));
            }
            Loaded::Page(..) | Loaded::ExternalCopy(..) => {}
        }
    }

    /// Requests the terminal for the editor or the pager; the handoff follows once the input
    /// thread has paused.
    fn request_handoff(&mut self, purpose: Result<ProgramPurpose>) {
        match purpose {
            Ok(_) if self.is_terminal_lent() => {}
            Ok(purpose) => {
                self.input_pause.request();
                self.pending_handoff = Some((purpose, self.moment().elapsed + READER_STOP_TIMEOUT));
            }
            Err(error) => self.update_model(Msg::Reported(MessageLevel::Error, error.to_line())),
        }
    }

    /// Whether another program has the terminal or is about to get it, or its output is still shown.
    fn is_terminal_lent(&self) -> bool {
        self.is_screen_lent() || self.pending_handoff.is_some()
    }

    /// Whether the screen shows the output of another program.
    fn is_screen_lent(&self) -> bool {
        self.foreground_program.is_some() || self.is_return_awaited
    }

    /// Starts the requested program; the input thread has paused.
    fn hand_over_terminal(&mut self, screen: &mut TerminalScreen) -> io::Result<()> {
        let Some((purpose, _)) = self.pending_handoff.take() else {
            return Ok(());
        };
        screen.release();
        let started = self.moment().elapsed;
        match self.start_program(&purpose) {
            Ok(child) => {
                self.foreground_program = Some(ForegroundProgram {
                    child,
                    purpose,
                    started,
                });
            }
            Err(error) => {
                self.reclaim_terminal(screen)?;
                self.update_model(Msg::Reported(MessageLevel::Error, error.to_line()));
            }
        }
        Ok(())
    }

    /// Cancels the handoff if the input thread did not pause in time, because it waits for the
    /// rest of a key sequence.
    fn cancel_late_handoff(&mut self) {
        let now = self.moment().elapsed;
        if self
            .pending_handoff
            .take_if(|(_, end)| *end <= now)
            .is_some()
        {
            self.input_pause.resume();
            let text = "incomplete key sequence: press the next key, or Esc";
            self.update_model(Msg::Reported(MessageLevel::Warn, text.to_string()));
        }
    }

    fn start_program(&self, purpose: &ProgramPurpose) -> Result<ForegroundChild> {
        let noun = purpose.program_noun();
        match purpose {
            ProgramPurpose::EditBaseline(_, copy) => ForegroundChild::start(
                noun,
                &self.external_tools.editor_commands()?,
                copy.path(),
                &[],
            ),
            ProgramPurpose::ReadText(file) => {
                // LESSSECURE keeps less from opening other programs and files; an empty LESS
                // keeps a short text from vanishing at once (option -F).
                let variables = [("LESSSECURE", "1"), ("LESS", "")];
                ForegroundChild::start(
                    noun,
                    &self.external_tools.pager_commands()?,
                    file.path(),
                    &variables,
                )
            }
        }
    }

    /// Handles a stop or the end of the program that has the terminal.
    fn handle_child_change(
        &mut self,
        change: Option<ChildChange>,
        screen: &mut TerminalScreen,
    ) -> io::Result<()> {
        let Some(program) = self.foreground_program.take() else {
            return Ok(());
        };
        if change == Some(ChildChange::Stopped) {
            program.child.stop_with_child()?;
            self.foreground_program = Some(program);
            return Ok(());
        }
        let ForegroundProgram {
            child,
            purpose,
            started,
        } = program;
        let exit_status = child.wait();
        let reason = match exit_status {
            Ok(status) if status.success() => None,
            Ok(status) => Some(describe_exit(status)),
            Err(error) => Some(crate::base::error::describe_io_error(&error)),
        };
        let has_succeeded = reason.is_none();
        let is_pager = matches!(purpose, ProgramPurpose::ReadText(_));
        let ran_for = self.moment().elapsed.saturating_sub(started);
        if is_pager && has_succeeded && is_output_kept(&self.model.preferences, ran_for) {
            screen.show_return_prompt(RETURN_PROMPT)?;
            self.input_pause.resume();
            self.is_return_awaited = true;
        } else {
            self.reclaim_terminal(screen)?;
        }
        if let Some(why) = reason {
            let text = format!("the {}: {why}", purpose.program_noun());
            self.update_model(Msg::Reported(MessageLevel::Warn, text));
        }
        if let ProgramPurpose::EditBaseline(opened, copy) = purpose {
            self.runner.read_external_copy(opened, copy, has_succeeded);
        }
        Ok(())
    }

    /// Ends the program that has the terminal, and keeps what an editor wrote. Returns what to tell
    /// the operator.
    fn end_foreground_program(&mut self) -> Option<String> {
        let ForegroundProgram { child, purpose, .. } = self.foreground_program.take()?;
        drop(child);
        match purpose {
            ProgramPurpose::EditBaseline(opened, copy) => {
                self.runner.keep_external_copy(&opened, copy)
            }
            ProgramPurpose::ReadText(_) => None,
        }
    }

    /// Takes the terminal back and resumes input.
    fn reclaim_terminal(&mut self, screen: &mut TerminalScreen) -> io::Result<()> {
        self.reclaim_screen(screen)?;
        self.input_pause.resume();
        Ok(())
    }

    /// Takes the screen back.
    fn reclaim_screen(&mut self, screen: &mut TerminalScreen) -> io::Result<()> {
        screen.resume()?;
        let (columns, rows) = screen.size();
        self.update_model(Msg::Resized(columns, rows));
        Ok(())
    }

    /// Draws the next frame soon.
    fn await_frame(&mut self) {
        self.is_frame_awaited = true;
        self.first_frame_due = None;
    }

    fn draw(&mut self, screen: &mut TerminalScreen) -> io::Result<()> {
        let bytes = screen.draw(&self.model, &self.theme)?;
        self.first_frame_due = None;
        self.model.is_dirty = false;
        self.is_frame_awaited = false;
        self.frame_pacer.record_frame(self.moment().elapsed, bytes);
        Ok(())
    }

    fn time_until_frame(&self) -> Duration {
        let now = self.moment().elapsed;
        match self.first_frame_due {
            Some(due) => due.saturating_sub(now),
            None => self
                .frame_pacer
                .delay_until_frame(now, self.is_frame_awaited),
        }
    }

    /// Applies a loaded theme; reports its errors if the operator requested it.
    fn apply_theme(&mut self, loaded: LoadedTheme) {
        match loaded.theme {
            Ok(theme) => {
                self.model.has_word_marks = theme.has_word_marks();
                self.theme = theme;
                if loaded.is_requested {
                    self.model.report_once(&format!("theme {}", loaded.name));
                }
            }
            Err(lines) if loaded.is_requested => {
                // The first error is reported last, so that it stays on the screen.
                for line in lines.into_iter().rev() {
                    self.model.report_error(line);
                }
            }
            Err(_) => {}
        }
        self.model.theme_names = loaded.theme_names;
    }

    fn moment(&self) -> Moment {
        self.clock.now()
    }
}

/// Whether the output of a pager that ran for that long stays until a key is pressed.
fn is_output_kept(preferences: &Preferences, ran_for: Duration) -> bool {
    preferences.has_pager_pause || ran_for < MIN_READING_TIME
}

/// Whether an event ends the wait behind [`RETURN_PROMPT`]. A stop of the process does, too: the
/// screen is taken again when it continues.
fn is_end_of_return_prompt(event: &InputEvent) -> bool {
    match event {
        InputEvent::Terminal(TerminalEvent::Key(key)) => key.kind != KeyEventKind::Release,
        InputEvent::Signal(signal) => matches!(*signal, SIGTSTP | SIGCONT),
        InputEvent::Terminal(_) | InputEvent::TerminalLost => false,
    }
}

/// Waits for the end of work in progress and writes `text` to `out`. Returns false if the operator
/// ends the wait.
fn wait_for_end(
    work: &RunHandle,
    text: &str,
    input: &Receiver<InputEvent>,
    out: &mut dyn Write,
) -> bool {
    // The terminal may be gone; the work continues.
    let _ = writeln!(out, "{text}");
    loop {
        select! {
            // The channel carries nothing: it closes when the work ends.
            recv(work) -> _ => return true,
            recv(input) -> input => match input {
                Ok(InputEvent::Signal(SIGINT | SIGTERM | SIGQUIT)) => return false,
                Ok(InputEvent::Signal(SIGTSTP)) => {
                    let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
                }
                Ok(_) => {}
                Err(_) => return work.recv().is_err(),
            },
        }
    }
}

#[cfg(test)]
mod tests;

//! Console fixture without terminal and engine: the model of an invented fleet, and a clock that
//! the test advances. The tests of `update`, of the views and of the bytes use it.

use std::path::Path;
use std::time::Duration;

use memory_shepherd::archive::EntryKind;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::boundary::Boundary;
use memory_shepherd::config::{self, ConfigEnvironment, LayoutKeys};
use memory_shepherd::console::command::{Command, CommandCategory, CommandSpec, KeyContext};
use memory_shepherd::console::initial_model;
use memory_shepherd::console::keys::key::{self, Key};
use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;
use memory_shepherd::console::message::{AgentTexts, ComparisonTexts, Effect, FileComparison, Msg};
use memory_shepherd::console::model::{Model, Moment};
use memory_shepherd::console::screens::agent::state::memory::{
    ItemPage, ItemsRequest, OpenedMemory,
};
use memory_shepherd::console::screens::baseline_plan::state::PreparedBaselinePlan;
use memory_shepherd::console::screens::editor::state::EditorScreen;
use memory_shepherd::console::text::{self, PreparedText, TextLine};
use memory_shepherd::console::theme::Theme;
use memory_shepherd::console::theme::{Role, role_of_state};
use memory_shepherd::console::update::{self, update};
use memory_shepherd::console::view;
use memory_shepherd::console::widgets::plan_pane::Confirmation;
use memory_shepherd::engine::{
    AgentDetail, BaselineDraft, BaselineFile, BaselineList, BaselineUser, DraftId, FileState,
    FindingCounts, FleetEvent, FoundDrafts, Observation, OpenedBaseline, Operation, Plan,
    PlannedFile, Protection, SealMatch, State, StepAction,
};
use memory_shepherd::layouts::{
    ArgumentForm, ArgumentSpec, Collection, FileEdit, MemoryItem, OperationSpec,
};
use memory_shepherd::transport::sftp::askpass::{self, Question};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::engine_samples::{self, minutes_before, observation_of, tampered_change, test_time};

/// The model and its clock.
pub struct TestConsole {
    pub model: Model,
    pub now: Duration,
    /// Effects requested since the last check, in order.
    pub effects: Vec<Effect>,
    generation: u64,
}

/// A fleet called `prod-west` of these agents, none of them read yet.
pub fn unread_fleet(names: &[&str], size: (u16, u16)) -> TestConsole {
    let mut config = "[general]\nfleet_name = prod-west\nfleet_tag = PROD\n".to_string();
    for name in names {
        config.push_str(&reset_agent_section(name));
    }
    configured_fleet(&config, size)
}

/// The section of an agent that is reset.
fn reset_agent_section(name: &str) -> String {
    format!("[{name}]\nmemory_file = /agents/{name}/MEMORY.md\nbaseline = {name}-MEMORY.md\n")
}

/// The fleet of a config, none of its agents read yet.
fn configured_fleet(config: &str, size: (u16, u16)) -> TestConsole {
    let env = ConfigEnvironment {
        uid: 1000,
        layouts: vec![LayoutKeys {
            name: "notes",
            keys: &[],
        }],
        ..ConfigEnvironment::bare("/etc/memory-shepherd")
    };
    let path = Path::new("/etc/memory-shepherd/memory-shepherd.conf");
    let config = config::parse(config.as_bytes(), path, &env);
    let config = config.unwrap_or_else(|problems| panic!("{problems}"));
    let moment = Moment {
        elapsed: Duration::from_secs(10),
        local_time: test_time(),
    };
    TestConsole {
        model: initial_model(&config, moment, size),
        now: moment.elapsed,
        effects: Vec::new(),
        generation: 0,
    }
}

/// A fleet of three: `keeper` only has a memory with a layout, `scout` has one beside the memory that
/// is reset, and `plain` has none.
pub fn fleet_with_layouts() -> TestConsole {
    let mut config = "[general]\nfleet_name = prod-west\nfleet_tag = PROD\n".to_string();
    config.push_str("[keeper]\nlayout = notes\nmemory_dir = /agents/keeper\n");
    config.push_str(&reset_agent_section("scout"));
    config.push_str("layout = notes\nmemory_dir = /agents/scout/notes\n");
    config.push_str(&reset_agent_section("plain"));
    let mut console = configured_fleet(&config, (120, 36));
    let keeper = Observation {
        reason: "notes, never reset".to_string(),
        content: None,
        baseline: None,
        last_run: None,
        ..observation_of("keeper", State::Layout)
    };
    let others = ["scout", "plain"].map(|name| observation_of(name, State::Scratch));
    console.observe([keeper].into_iter().chain(others).collect());
    console
}

/// The operations of the layout in [`fleet_with_layouts`].
pub static OPERATIONS: [OperationSpec; 2] = [
    OperationSpec {
        name: "keep",
        title: "keep a note",
        arguments: &[ArgumentSpec {
            name: "note",
            title: "note to keep",
            form: ArgumentForm::ItemOrFile,
            is_required: true,
            choices: &[],
        }],
    },
    OperationSpec {
        name: "move",
        title: "move a note to a collection",
        arguments: &[
            ArgumentSpec {
                name: "why",
                title: "why it is moved",
                form: ArgumentForm::Named,
                is_required: false,
                choices: &[],
            },
            ArgumentSpec {
                name: "note",
                title: "note to move",
                form: ArgumentForm::Positional,
                is_required: true,
                choices: &[],
            },
            ArgumentSpec {
                name: "to",
                title: "its collection",
                form: ArgumentForm::Named,
                is_required: true,
                choices: &["kept", "archived"],
            },
        ],
    },
];

/// An item of a memory; its title tells its id.
pub fn memory_item(id: &str) -> MemoryItem {
    MemoryItem {
        id: id.to_string(),
        title: format!("title of {id}"),
        path: id.into(),
        bytes: 18,
        modified: Some(minutes_before(130)),
        visible_to: "all".to_string(),
        labels: Vec::new(),
        failure: None,
    }
}

/// The files of an edit of `keeper` that moves a note, as the plan has them, and their contents.
pub fn edit_of_keeper() -> (Vec<PlannedFile>, Vec<FileEdit>) {
    let edit = |path: &str, before: Option<&str>, after: Option<&str>| FileEdit {
        path: path.into(),
        before: before.map(|text| text.as_bytes().to_vec()),
        after: after.map(|text| text.as_bytes().to_vec()),
        moved_from: None,
    };
    let edits = vec![
        edit("kept/tea.md", None, Some("green tea is good\n")),
        edit(
            "index.md",
            Some("one\ntwo\nthree\n"),
            Some("one\nthree\nfour\n"),
        ),
        edit("tea.md", Some("green tea is good\n"), None),
    ];
    let state = |bytes: &Option<Vec<u8>>| {
        bytes
            .as_ref()
            .map_or(FileState::Absent, |bytes| FileState::File {
                sha256: Digest::of(bytes),
                size: bytes.len() as u64,
                lines: bytes.iter().filter(|byte| **byte == b'\n').count() as u64,
            })
    };
    let planned = edits.iter().map(|edit| {
        let file = serde_json::json!({
            "path": Path::new("/agents/keeper").join(&edit.path),
            "before": state(&edit.before),
            "after": state(&edit.after),
        });
        serde_json::from_value(file).unwrap()
    });
    (planned.collect(), edits)
}

/// The plan of [`edit_of_keeper`].
pub fn edit_plan() -> Plan {
    let mut plan = engine_samples::plan(&[("keeper", State::Layout)]);
    plan.operation = Operation::Edit;
    let step = &mut plan.steps[0];
    step.action = StepAction::Edit;
    step.entry_kind = Some(EntryKind::FullBackup);
    step.archive_bytes = 32;
    step.notes = Vec::new();
    step.files = edit_of_keeper().0;
    step.new_directories = vec!["/agents/keeper/kept".into()];
    plan
}

/// The same fleet after reading, each agent in its state.
pub fn fleet_of(agents: &[(&str, State)]) -> TestConsole {
    let names: Vec<&str> = agents.iter().map(|(name, _)| *name).collect();
    let mut console = unread_fleet(&names, (120, 36));
    let seen = agents
        .iter()
        .map(|(name, state)| observation_of(name, *state));
    console.observe(seen.collect());
    console
}

/// Four agents in different states; the worst is the third in config order.
pub fn fleet_of_four() -> TestConsole {
    fleet_of(&[
        ("alpha", State::Clean),
        ("bravo", State::Scratch),
        ("charlie", State::Drifted),
        ("delta", State::Scratch),
    ])
}

/// The baseline of the first agents of [`fleet_of_four`] in the editor, sealed.
pub fn opened_baseline(agents: &[&str], text: &[u8]) -> OpenedBaseline {
    let user = |agent: &&str| BaselineUser {
        agent: agent.to_string(),
        protection: Protection::None,
        max_memory_size: 16_384,
        separator: "---".to_string(),
    };
    let name = format!("{}-MEMORY.md", agents[0]);
    OpenedBaseline {
        path: Path::new("/etc/memory-shepherd/baselines").join(&name),
        name,
        digest: Digest::of(text),
        bytes: text.to_vec(),
        users: agents.iter().map(user).collect(),
        seal: SealMatch::Sealed,
        is_immutable: false,
        unlock_refusal: None,
        problems: Vec::new(),
        is_refused: false,
        drafts: FoundDrafts::default(),
    }
}

/// The comparison of an editor's text with its file, which is as it was sealed.
pub fn file_comparison(disk: &[u8], text: &[u8]) -> FileComparison {
    FileComparison {
        disk: BaselineFile::Readable(disk.to_vec()),
        seal: SealMatch::Sealed,
        is_from_seal: false,
        diff: text::prepare_comparison([disk, text], None),
        changed_lines: (1, 0),
        dropped_lines: 0,
        is_immutable: false,
        unlock_refusal: None,
        findings: FindingCounts::default(),
    }
}

/// A draft that an earlier edit left of a baseline with the content `base`.
pub fn left_draft(text: &[u8], base: &[u8]) -> BaselineDraft {
    BaselineDraft {
        id: DraftId {
            file_name: "draft".to_string(),
            digest: Digest::of(text),
        },
        bytes: text.to_vec(),
        base: Digest::of(base),
        base_bytes: base.to_vec(),
        time: test_time() - chrono::Duration::minutes(7),
    }
}

/// The drafts that are found where one was left.
pub fn one_draft(draft: &BaselineDraft) -> FoundDrafts {
    FoundDrafts {
        newest: Some(draft.clone()),
        ..FoundDrafts::default()
    }
}

/// Row of an added command, as the demo adds one.
static EXTRA_COMMAND: CommandSpec = CommandSpec {
    command: Command::Extra,
    id: "extra",
    title: "Do more than the table says",
    hint: "extra",
    category: CommandCategory::General,
    contexts: &[KeyContext::Fleet, KeyContext::Hosts],
    keys: &["D"],
};

impl TestConsole {
    /// Adds a command with the key `D`.
    pub fn add_extra_command(&mut self) {
        self.model.extra_command = Some(&EXTRA_COMMAND);
        self.model.adopt_preferences(self.model.preferences.clone());
    }

    /// Tells the model which jobs of the effect runner have not ended.
    pub fn list_jobs(&mut self, labels: &[&str]) {
        let labels = labels.iter().map(ToString::to_string).collect();
        let now = self.moment();
        self.model.background_jobs.follow_requests(labels, now);
    }

    pub fn moment(&self) -> Moment {
        let wall = test_time() + chrono::Duration::from_std(self.now).unwrap()
            - chrono::Duration::seconds(10);
        Moment {
            elapsed: self.now,
            local_time: wall,
        }
    }

    pub fn send(&mut self, msg: Msg) -> Vec<Effect> {
        let moment = self.moment();
        let effects = update(&mut self.model, moment, msg);
        self.effects.extend(effects.iter().cloned());
        effects
    }

    /// Advances the clock, with a tick whenever the model requests one.
    pub fn advance(&mut self, time: Duration) -> Vec<Effect> {
        let end = self.now + time;
        let mut effects = Vec::new();
        for _ in 0..10_000 {
            let wake = update::next_wake(&self.model);
            if wake > end {
                self.now = end;
                return effects;
            }
            self.now = self.now.max(wake);
            effects.extend(self.send(Msg::Tick));
        }
        panic!("endless ticks");
    }

    /// Presses keys one after the other, half a second apart. `Esc`, `Enter`, `^c`,
    /// `gg` and the like are written as in the key table; other words are typed letter
    /// by letter.
    pub fn press(&mut self, keys: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        for key in keys.split(' ').flat_map(keys_of) {
            effects.extend(self.advance(Duration::from_millis(500)));
            effects.extend(self.send(Msg::KeysPressed(vec![key])));
        }
        effects
    }

    /// Types a line, blanks included.
    pub fn type_line(&mut self, line: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        for c in line.chars() {
            effects.extend(self.advance(Duration::from_millis(50)));
            let key = Key::from_code(key::KeyCode::Char(c));
            effects.extend(self.send(Msg::KeysPressed(vec![key])));
        }
        effects
    }

    /// Moves the cursor of the fleet to an agent.
    pub fn select_agent(&mut self, name: &str) {
        self.model.fleet.set_cursor(Some(name.to_string()));
    }

    /// Opens the Memory tab of the agent under the cursor, and delivers its collections.
    pub fn open_memory(&mut self) -> ItemsRequest {
        self.press("Enter");
        let request = self.items_request();
        self.deliver_collections(request.number);
        request
    }

    /// Returns the last request for items.
    pub fn items_request(&self) -> ItemsRequest {
        let mut effects = self.effects.iter().rev();
        let request = effects.find_map(|effect| match effect {
            Effect::ReadItems(request) => Some(request.clone()),
            _ => None,
        });
        request.expect("no request for items")
    }

    /// Delivers two collections of a memory, of which the first is open.
    pub fn deliver_collections(&mut self, number: u64) {
        let collection = |id: &str, name: &str| Collection {
            id: id.to_string(),
            name: name.to_string(),
        };
        let opened = OpenedMemory {
            layout: "notes",
            collections: vec![
                collection("new", "New notes"),
                collection("kept", "Kept notes"),
            ],
            collection: self.items_request().collection.or(Some("new".to_string())),
            operations: &OPERATIONS,
        };
        self.send(Msg::MemoryOpened(number, Ok(Box::new(opened))));
    }

    /// Delivers items of the open collection.
    pub fn deliver_items(&mut self, number: u64, ids: &[&str], is_last: bool) -> Vec<Effect> {
        let items = ids.iter().map(|id| memory_item(id)).collect();
        self.send(Msg::ItemsRead(number, Ok(ItemPage { items, is_last })))
    }

    /// Opens the baselines and delivers their list.
    pub fn open_baselines(&mut self, list: BaselineList) {
        let effects = self.press("3");
        assert_eq!(effects, [Effect::LoadBaselines]);
        self.load_baselines(list);
    }

    /// Delivers the list of baselines.
    pub fn load_baselines(&mut self, list: BaselineList) {
        self.send(Msg::BaselinesLoaded(Ok(Box::new(list))));
    }

    /// Delivers the texts of the open comparison.
    pub fn load_comparison(&mut self, old: &str, new: &str) {
        let request = self.model.baselines.comparison.request.clone();
        let title = |side: usize, text: &str| {
            let digest = Digest::of(text.as_bytes()).short_hex(8);
            format!("{}  {digest}…", request.sides[side].label())
        };
        let texts = ComparisonTexts {
            texts: text::ComparedTexts {
                text: text::prepare_comparison([old.as_bytes(), new.as_bytes()], None),
                titles: [title(0, old), title(1, new)],
                changed_lines: memory_shepherd::base::diff::count_changes(
                    old.as_bytes(),
                    new.as_bytes(),
                    None,
                ),
            },
            old_side: request.sides[0].clone(),
        };
        self.send(Msg::BaselineCompared(request, Ok(Box::new(texts))));
    }

    /// Answers the most recent request for a plan over baselines, and waits until the model accepts
    /// keys again.
    pub fn answer_baseline_plan(&mut self, plan: PreparedBaselinePlan) {
        let request = self.model.baseline_plan.plan.requests.last_id;
        self.send(Msg::BaselinePlanMade(request, Ok(Box::new(plan))));
        self.advance(KEY_GUARD_TIME);
    }

    /// Delivers a host's prompt.
    pub fn ask(&mut self, question: Question) {
        self.send(Msg::PromptEvent(askpass::PromptEvent::Asked(question)));
    }

    /// Delivers observations of agents, with the next generation and the current time.
    pub fn observe(&mut self, seen: Vec<Observation>) -> Vec<Effect> {
        let stamped = seen.into_iter().map(|mut seen| {
            self.generation += 1;
            seen.generation = self.generation;
            seen.read_at = self.moment().local_time;
            seen
        });
        let stamped = stamped.collect();
        self.send(Msg::Fleet(FleetEvent::Observed(stamped)))
    }

    /// Answers the most recent plan request.
    pub fn answer_plan(&mut self, plan: Plan) -> Vec<Effect> {
        let request = self.model.reset.plan.requests.last_id;
        self.send(Msg::PlanMade(request, Ok(Box::new(plan))))
    }

    /// Presses keys that request a plan, answers with one, and waits until the model
    /// accepts keys again.
    pub fn press_and_plan(&mut self, keys: &str, plan: Plan) {
        let effects = self.press(keys);
        assert!(
            matches!(effects.last(), Some(Effect::MakePlan(..))),
            "{keys} requests no plan: {effects:?}"
        );
        self.answer_plan(plan);
        self.advance(KEY_GUARD_TIME);
        self.effects.clear();
    }

    pub fn confirmation(&self) -> &Confirmation {
        &self.model.reset.plan.shown().unwrap().prompt.confirmation
    }

    pub fn typed_confirmation(&self) -> &str {
        &self.model.reset.plan.shown().unwrap().prompt.typed_text
    }

    /// Returns what the screen shows, its rows one after the other.
    pub fn screen_text(&self) -> String {
        let (columns, rows) = self.model.size;
        let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
        let theme = Theme::built_in("mono").unwrap();
        view::draw(&self.model, &theme, &mut buffer);
        buffer.content.iter().map(|cell| cell.symbol()).collect()
    }

    pub fn message_text(&self) -> &str {
        let message = self.model.last_message.as_ref();
        message.map_or("", |message| message.text.as_str())
    }

    /// Returns the agents whose plan was applied.
    pub fn applied_agents(&self) -> Vec<String> {
        let steps = self.effects.iter().filter_map(|effect| match effect {
            Effect::ApplyPlan(plan) => Some(plan.steps.iter().map(|step| step.agent.clone())),
            _ => None,
        });
        steps.flatten().collect()
    }

    /// Opens the baseline of the agent under the cursor in the editor.
    pub fn open_editor(&mut self, opened: OpenedBaseline) {
        let name = opened.name.clone();
        assert_eq!(self.press("e"), [Effect::OpenBaseline(name.clone())]);
        self.send(Msg::BaselineOpened(name, Ok(Box::new(opened))));
    }

    /// Returns the editor.
    pub fn editor(&self) -> &EditorScreen {
        self.model.editor.as_deref().unwrap()
    }

    /// Returns the text of the editor.
    pub fn edited_text(&self) -> String {
        String::from_utf8(self.editor().buffer.to_bytes()).unwrap()
    }

    /// Opens an agent and delivers its texts.
    pub fn open_agent(&mut self, name: &str, memory: &[u8], baseline: Option<&[u8]>) {
        self.press(":");
        self.type_line(&format!("agent {name}"));
        let effects = self.press("Enter");
        assert_eq!(effects, [Effect::PrepareTexts(name.to_string())]);
        self.load_texts(name, memory, baseline);
    }

    /// Delivers the texts of the open agent, measured as the engine would.
    pub fn load_texts(&mut self, name: &str, memory: &[u8], baseline: Option<&[u8]>) {
        let detail = self.agent_detail(name, memory, baseline);
        self.load_prepared(
            name,
            text::prepare_diff(&detail, None),
            text::prepare_scratch(&detail),
        );
    }

    /// Delivers prepared texts of the open agent.
    pub fn load_prepared(&mut self, name: &str, diff: PreparedText, scratch: PreparedText) {
        let texts = self.agent_texts(name, diff, scratch);
        self.send(Msg::TextsPrepared(Box::new(texts)));
    }

    /// Returns texts of the open agent, newer than any before.
    pub fn agent_texts(
        &mut self,
        name: &str,
        diff: PreparedText,
        scratch: PreparedText,
    ) -> AgentTexts {
        self.generation += 1;
        AgentTexts {
            agent: name.to_string(),
            address: None,
            generation: self.generation,
            diff,
            scratch,
            baseline: text::prepare_baseline_diff(&tampered_change(name), None),
            baseline_titles: [
                "sealed version".to_string(),
                format!("file /etc/memory-shepherd/baselines/{name}-MEMORY.md"),
            ],
            facts: fact_lines(),
            diff_titles: diff_titles(name),
            findings: "separator L3 (1 of 1) · 2 invisible characters".to_string(),
            cached_observation: None,
            observation: None,
        }
    }

    /// Delivers the read failure of the open agent, with a copy of that many minutes
    /// ago.
    pub fn load_cached_copy(
        &mut self,
        name: &str,
        memory: &[u8],
        baseline: Option<&[u8]>,
        minutes: i64,
    ) {
        let why = self
            .model
            .find_row(name)
            .and_then(|row| row.latest_observation());
        let findings = why.expect("the agent has no observation").reason.clone();
        let known = self
            .model
            .find_row(name)
            .and_then(|row| row.last_readable_observation());
        let mut detail = self.agent_detail(name, memory, baseline);
        detail.observation = known.expect("the agent was not read").clone();
        detail.observation.read_at = minutes_before(minutes);
        let content = detail.observation.content.as_mut().unwrap();
        content.boundary = baseline.and_then(|baseline| boundary_in(memory, baseline));
        detail.error = None;
        let (diff, scratch) = (
            text::prepare_diff(&detail, None),
            text::prepare_scratch(&detail),
        );
        let texts = AgentTexts {
            findings,
            cached_observation: Some(Box::new(detail.observation)),
            ..self.agent_texts(name, diff, scratch)
        };
        self.send(Msg::TextsPrepared(Box::new(texts)));
    }

    fn agent_detail(&self, name: &str, memory: &[u8], baseline: Option<&[u8]>) -> AgentDetail {
        use memory_shepherd::boundary::Baseline;
        let row = self
            .model
            .find_row(name)
            .and_then(|row| row.latest_observation());
        let mut observation = row.expect("the agent has no observation").clone();
        let known = baseline.map(|baseline| Baseline::new(baseline.to_vec(), "---"));
        let boundary = baseline.and_then(|baseline| boundary_in(memory, baseline));
        if let Some(content) = &mut observation.content {
            content.boundary = boundary;
            content.size = memory.len() as u64;
        }
        AgentDetail {
            error: observation
                .content
                .is_none()
                .then(|| observation.reason.clone()),
            observation,
            operator_part: known.map(|known| known.operator_part().to_vec()),
            next_operator_part: None,
            memory_prefix: memory.to_vec(),
            omitted_bytes: 0,
        }
    }
}

fn diff_titles(name: &str) -> [String; 2] {
    [
        format!("baseline {name}-MEMORY.md (above ---)"),
        format!("memory /agents/{name}/MEMORY.md"),
    ]
}

/// A few facts in the form that the screen shows.
fn fact_lines() -> Vec<(&'static str, TextLine)> {
    let fact = |label, text: &str, tone| {
        let raw = text.as_bytes().to_vec();
        let tones = vec![(0..raw.len(), tone)];
        let line = TextLine {
            bytes: raw,
            tones,
            ..TextLine::default()
        };
        (label, line)
    };
    let digest = Digest::of(b"memory").to_string();
    vec![
        ("Now", TextLine::default()),
        fact("state", "DRIFTED", role_of_state(State::Drifted)),
        fact("why", "rules edited: L31 L58", Role::Text),
        ("Memory", TextLine::default()),
        fact("path", "/agents/code-reviewer/MEMORY.md", Role::Text),
        fact(
            "size",
            "██████████████████░░ 88%  14420 of 16384 bytes",
            Role::Text,
        ),
        fact("sha256", &digest, Role::Text),
        ("Findings", TextLine::default()),
        fact("", "2 invisible characters", Role::Warn),
        fact("", "words with \u{1b}[31m and \u{202e}", Role::Warn),
    ]
}

fn boundary_in(memory: &[u8], baseline: &[u8]) -> Option<Boundary> {
    use memory_shepherd::boundary::{Baseline, find_boundary};
    find_boundary(memory, &Baseline::new(baseline.to_vec(), "---"), &[])
}

fn keys_of(word: &str) -> Vec<Key> {
    key::parse_sequence(word).unwrap_or_else(|_| word.chars().flat_map(keys_of_letter).collect())
}

fn keys_of_letter(c: char) -> Vec<Key> {
    key::parse_sequence(&c.to_string()).unwrap_or_else(|fault| panic!("{c:?}: {fault:?}"))
}

/// Keys that arrive in one read.
pub fn keys_message(words: &str) -> Msg {
    Msg::KeysPressed(words.split(' ').flat_map(keys_of).collect())
}

//! What the Memory and Health tabs do: load a memory with a layout page by page, show the content of an
//! item, check the memory, and plan an operation on it.

use crate::console::command::{Command, require};
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::model::plans::{check_no_run, request_plan};
use crate::console::overlay::{OPERATION_KIND, Overlay};
use crate::console::screen::Screen;
use crate::console::screens::agent::state::AgentTab;
use crate::console::screens::agent::state::memory::{
    ITEM_STEP, ItemContentPane, ItemContentRequest, ItemPage, ItemsRequest, OpenedMemory,
    OperationDraft,
};
use crate::console::screens::agent::view::agent_list_height;
use crate::console::screens::reset::state::PlanRequest;
use crate::console::text::PreparedText;
use crate::console::widgets::list_pane::{MIN_PREVIEW_COLUMNS, step_index};
use crate::console::widgets::prompt::{Prompt, PromptPurpose};
use crate::layouts::{ArgumentForm, ArgumentSpec, HealthFinding, OperationRequest};

/// Requests the memory of the agent on the screen again. What is shown stays until the answer.
pub fn load(model: &mut Model) -> Vec<Effect> {
    let number = model.agent.memory_requests.begin();
    let agent = &mut model.agent;
    let items = &mut agent.memory.items;
    agent.memory.number = number;
    items.wanted = items.loaded.len().max(ITEM_STEP);
    items.is_complete = false;
    items.is_outdated = true;
    items.reread.clear();
    items.failure = None;
    vec![Effect::ReadItems(ItemsRequest {
        number,
        agent: agent.agent.clone(),
        collection: agent.memory.collection.clone(),
        loaded: 0,
        wanted: items.wanted,
    })]
}

/// Shows the items of another collection.
fn open_collection(model: &mut Model, id: String) -> Vec<Effect> {
    let memory = &mut model.agent.memory;
    memory.collection = Some(id);
    let order = memory.items.order;
    memory.items = Default::default();
    memory.items.order = order;
    memory.content = ItemContentPane::default();
    load(model)
}

/// Shows the collections of a memory that was opened.
pub fn handle_opened(model: &mut Model, number: u64, opened: Result<OpenedMemory, String>) {
    let memory = &mut model.agent.memory;
    if number != memory.number {
        return;
    }
    match &opened {
        Ok(opened) => {
            if memory.collection != opened.collection {
                memory.items.clear();
                memory.collection.clone_from(&opened.collection);
            }
        }
        Err(_) => {
            memory.items.clear();
            memory.items.is_complete = true;
        }
    }
    memory.opened = Some(opened);
    model.is_dirty |= model.screen == Screen::Agent;
}

/// Shows items that were read, or says why there are no more.
pub fn handle_items(model: &mut Model, number: u64, page: Result<ItemPage, String>) {
    let now = model.now.local_time;
    let memory = &mut model.agent.memory;
    if number != memory.number {
        return;
    }
    match page {
        Ok(page) => memory.items.add_page(page, now),
        Err(why) => {
            memory.items.finish_reread(now);
            if memory.opened.is_none() {
                memory.opened = Some(Err(why));
            } else {
                memory.items.failure = Some(why);
            }
        }
    }
    model.is_dirty |= model.screen == Screen::Agent;
}

/// Notes that no more items come until they are requested again. Where a changed config ended the job
/// before the items were read again, requests all of them once more.
pub fn handle_items_paused(model: &mut Model, number: u64) -> Vec<Effect> {
    let memory = &mut model.agent.memory;
    if number != memory.number {
        return Vec::new();
    }
    memory.items.wanted = memory.items.loaded.len();
    if memory.items.is_outdated {
        return load(model);
    }
    Vec::new()
}

/// Returns what the lists on the screen need: more items where the cursor is near the last one, and the
/// content of the item under the cursor where it is shown.
pub fn request_due(model: &mut Model) -> Vec<Effect> {
    match (model.screen, model.agent.tab) {
        (Screen::Agent, AgentTab::Memory) if model.agent.memory.number == 0 => return load(model),
        (Screen::Agent, AgentTab::Health) => {
            let mut due = Vec::new();
            if model.agent.health.number == 0 {
                due.extend(check_health(model));
            }
            // Operations on what the checks found are those of the opened memory.
            if model.agent.memory.number == 0 {
                due.extend(load(model));
            }
            return due;
        }
        (Screen::Agent, AgentTab::Memory) => {}
        _ => return Vec::new(),
    }
    let items = request_more_items(model, model.agent.memory.items.filter.is_empty());
    items.into_iter().chain(request_content(model)).collect()
}

/// Requests more items if the cursor is near the last loaded one, and `is_wanted`: a filter that shows
/// few items must not load all of them by itself.
fn request_more_items(model: &mut Model, is_wanted: bool) -> Option<Effect> {
    let ahead = 2 * agent_list_height(model);
    let agent = &mut model.agent;
    let items = &mut agent.memory.items;
    let is_near = items.cursor_index() + ahead >= items.shown.len();
    let is_possible = !items.is_outdated && !items.is_complete && items.failure.is_none();
    if !is_wanted || !is_near || !is_possible || items.is_reading() {
        return None;
    }
    items.wanted = items.loaded.len() + ITEM_STEP;
    Some(Effect::ReadItems(ItemsRequest {
        number: agent.memory.number,
        agent: agent.agent.clone(),
        collection: agent.memory.collection.clone(),
        loaded: items.loaded.len(),
        wanted: items.wanted,
    }))
}

/// Requests the content of the item under the cursor, unless it is the one that was requested last.
fn request_content(model: &mut Model) -> Option<Effect> {
    let is_shown = model.agent.memory.content.is_open || model.size.0 >= MIN_PREVIEW_COLUMNS;
    let agent = &mut model.agent;
    let memory = &mut agent.memory;
    let item = match &memory.content.request {
        // An open content stays, wherever the cursor is.
        Some(request) if memory.content.is_open => Some(request.item.clone()),
        _ => memory.items.current_item().map(|item| item.id.clone()),
    };
    let wanted = ItemContentRequest {
        number: memory.number,
        agent: agent.agent.clone(),
        collection: memory.collection.clone(),
        item: item?,
    };
    let is_due = !memory.items.is_outdated && memory.content.request.as_ref() != Some(&wanted);
    if !is_shown || !is_due {
        return None;
    }
    if memory.content.item() != Some(&wanted.item) {
        memory.content.pane.clear();
    }
    memory.content.request = Some(wanted.clone());
    Some(Effect::ReadItemContent(wanted))
}

/// Shows the content of an item, if it is still the one that is wanted.
pub fn handle_content(
    model: &mut Model,
    request: &ItemContentRequest,
    text: Result<PreparedText, String>,
) {
    let content = &mut model.agent.memory.content;
    if content.request.as_ref() != Some(request) {
        return;
    }
    let text = text.unwrap_or_else(PreparedText::note);
    content.pane.show(text);
    model.is_dirty |= model.screen == Screen::Agent;
}

/// Moves the cursor of the collections or of the items.
pub fn move_cursor(model: &mut Model, by: isize) -> Vec<Effect> {
    let memory = &mut model.agent.memory;
    if memory.has_collection_focus {
        let index = memory.collection_index();
        let next = step_index(index, by, memory.collections().len());
        let id = memory.collections().get(next).map(|it| it.id.clone());
        return match id {
            Some(id) if next != index => open_collection(model, id),
            _ => Vec::new(),
        };
    }
    memory.items.move_cursor(by);
    request_more_items(model, by > 0).into_iter().collect()
}

/// Goes from the collections to the items, or opens the item under the cursor.
pub fn open_selected(model: &mut Model) -> Vec<Effect> {
    let memory = &mut model.agent.memory;
    if std::mem::take(&mut memory.has_collection_focus) {
        return Vec::new();
    }
    let Some(id) = memory.items.current_item().map(|item| item.id.clone()) else {
        return Vec::new();
    };
    if memory.content.item() != Some(&id) {
        memory.content = ItemContentPane::default();
    }
    // The content is requested with all that is due.
    memory.content.is_open = true;
    memory.items.list.key = Some(id);
    Vec::new()
}

/// Opens the file of the finding under the cursor.
pub fn open_finding(model: &mut Model) -> Vec<Effect> {
    let agent = &mut model.agent;
    let path = agent
        .health
        .current_finding()
        .and_then(|it| it.path.as_deref());
    let Some(path) = path.and_then(|path| path.to_str()) else {
        return Vec::new();
    };
    let request = ItemContentRequest {
        number: agent.memory.number,
        agent: agent.agent.clone(),
        collection: agent.memory.collection.clone(),
        item: path.to_string(),
    };
    agent.memory.content = ItemContentPane {
        request: Some(request.clone()),
        is_open: true,
        is_of_finding: true,
        ..ItemContentPane::default()
    };
    agent.tab = AgentTab::Memory;
    vec![Effect::ReadItemContent(request)]
}

/// Goes back one level on the Memory tab: from an open item to its list, from the items to all of them,
/// and to the collections with a key that does not leave the screen. Returns whether there was one.
pub fn go_back(model: &mut Model, is_escape: bool, is_leaving: bool) -> bool {
    let memory = &mut model.agent.memory;
    if memory.content.is_of_finding {
        memory.content = ItemContentPane::default();
        model.agent.tab = AgentTab::Health;
    } else if memory.content.is_open {
        memory.content.is_open = false;
        memory.content.pane.search("");
    } else if is_escape && !memory.items.filter.is_empty() {
        memory.items.set_filter(String::new());
    } else if !is_leaving && !memory.has_collection_focus && memory.collections().len() > 1 {
        memory.has_collection_focus = true;
    } else {
        return false;
    }
    true
}

/// Filters the loaded items.
pub fn set_filter(model: &mut Model, filter: String) {
    model.agent.memory.items.set_filter(filter);
    model.agent.memory.has_collection_focus = false;
    model.is_dirty = true;
}

/// Checks that the screen lists the items of a memory.
pub fn check_items(model: &Model) -> Result<(), String> {
    let is_listed = model.agent.tab == AgentTab::Memory && !model.agent.memory.content.is_open;
    require(is_listed, "no items of a memory here")
}

/// Sorts the items in the next order.
pub fn sort_items(model: &mut Model) {
    let items = &mut model.agent.memory.items;
    items.set_order(items.order.next());
    model.is_dirty = true;
}

/// Requests the findings of the checks of the memory.
pub fn check_health(model: &mut Model) -> Vec<Effect> {
    let number = model.agent.memory_requests.begin();
    model.agent.health.number = number;
    vec![Effect::CheckMemory(number, model.agent.agent.clone())]
}

/// Shows what the checks found. The cursor stays on its finding.
pub fn handle_health(model: &mut Model, number: u64, findings: Result<Vec<HealthFinding>, String>) {
    let now = model.now.local_time;
    let health = &mut model.agent.health;
    if number != health.number {
        return;
    }
    health.list = health.list.pinned(health.findings());
    health.show(findings, now);
    model.is_dirty |= model.screen == Screen::Agent;
}

/// Moves the cursor of the findings.
pub fn move_finding_cursor(model: &mut Model, by: isize) {
    let health = &mut model.agent.health;
    health.list = health.list.stepped(by, health.findings());
}

/// Checks that the screen shows a memory whose layout has operations.
pub fn check_operations(model: &Model) -> Result<(), String> {
    let agent = &model.agent.agent;
    require(
        has_layout(model),
        format!("{agent} has no memory with a layout; set layout and memory_dir in its section"),
    )?;
    let key = model.key_hint(Command::NextTab);
    require(
        model.agent.tab.is_about_layout(),
        format!("operations are on the Memory and Health tabs; {key} switches tabs"),
    )?;
    check_no_run(model)?;
    let opened = match &model.agent.memory.opened {
        None => return Err("the memory is not read yet".to_string()),
        Some(Err(why)) => return Err(why.clone()),
        Some(Ok(opened)) => opened,
    };
    let reason = format!("the layout {} has no operations", opened.layout);
    require(!opened.operations.is_empty(), reason)
}

/// Lists the operations of the layout to choose one.
pub fn choose_operation(model: &mut Model) {
    model.overlay = Some(Overlay::palette(OPERATION_KIND));
}

/// Asks for the arguments of an operation, if it has any, and plans it.
pub fn begin_operation(model: &mut Model, name: &str) -> Vec<Effect> {
    let agent = model.agent.agent.clone();
    let spec = model.agent.memory.find_operation(name);
    let Some(mut draft) = spec.map(|spec| OperationDraft::new(agent, spec)) else {
        return Vec::new();
    };
    let unplanned = model.agent.memory.unplanned.take();
    if let Some(earlier) = unplanned.filter(|it| (&it.agent, it.spec) == (&draft.agent, draft.spec))
    {
        draft.earlier = earlier.earlier;
        draft.earlier.extend(earlier.given);
    }
    continue_operation(model, draft)
}

/// Asks for the next argument of an operation; plans it when all are given.
fn continue_operation(model: &mut Model, draft: OperationDraft) -> Vec<Effect> {
    if draft.argument().is_none() {
        model.agent.memory.unplanned = Some(draft.clone());
        let edit = PlanRequest::Edit {
            agent: draft.agent,
            request: OperationRequest {
                operation: draft.spec.name.to_string(),
                arguments: draft.given,
                now: model.now.local_time,
            },
        };
        return request_plan(model, edit, false);
    }
    let item = draft.argument().filter(|_| draft.is_of_item());
    let text = item.and_then(|argument| subject_of(model, argument));
    let text = text.or_else(|| draft.earlier_text()).unwrap_or_default();
    model.agent.memory.unplanned = Some(draft.clone());
    let purpose = PromptPurpose::OperationArgument(draft);
    model.input_line = Some(Prompt::prefilled(purpose, text));
    model.is_dirty = true;
    Vec::new()
}

/// Returns the item that an operation is about: the one under the cursor, or that of the finding there.
fn subject_of(model: &Model, argument: &ArgumentSpec) -> Option<String> {
    let agent = &model.agent;
    let takes_path = argument.form == ArgumentForm::ItemOrFile;
    if agent.tab == AgentTab::Memory {
        let item = agent.memory.subject_item();
        let path = item
            .and_then(|item| item.path.to_str())
            .filter(|_| takes_path);
        return path.or(agent.memory.subject_id()).map(str::to_string);
    }
    let finding = agent.health.current_finding()?;
    let path = finding.path.as_ref().and_then(|path| path.to_str());
    let path = path.map(str::to_string);
    if takes_path {
        return path;
    }
    finding.id.clone().or(path)
}

/// Takes an argument of an operation, and goes on to the next one.
pub fn finish_argument(model: &mut Model, mut draft: OperationDraft, text: String) -> Vec<Effect> {
    let Some(argument) = draft.argument() else {
        return Vec::new();
    };
    if !text.is_empty() {
        if !argument.choices.is_empty() && !argument.choices.contains(&text.as_str()) {
            let choices = argument.choices.join(", ");
            model.show_hint(&format!(
                "{} is one of {choices}; Esc cancels",
                argument.name
            ));
            let purpose = PromptPurpose::OperationArgument(draft);
            model.input_line = Some(Prompt::prefilled(purpose, text));
            return Vec::new();
        }
        let values = match argument.form {
            ArgumentForm::Repeated => text.split(',').map(|it| it.trim().to_string()).collect(),
            _ => vec![text],
        };
        draft.given.insert(argument.name.to_string(), values);
    } else if argument.is_required {
        model.show_hint(&format!(
            "{} needs {}; Esc cancels",
            draft.spec.name, argument.name
        ));
        model.input_line = Some(Prompt::new(PromptPurpose::OperationArgument(draft)));
        return Vec::new();
    }
    draft.index += 1;
    continue_operation(model, draft)
}

/// Whether the agent on the screen has a memory with a layout.
pub fn has_layout(model: &Model) -> bool {
    let row = model.find_row(&model.agent.agent);
    row.is_some_and(|row| row.layout.is_some())
}

//! What the page with the timeline of one agent does.

use crate::console::command::require;
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::screen::Screen;
use crate::console::screens::archives::state::{ArchivesPage, NO_ENTRY_REASON};
use crate::engine::{AgentTimeline, TextSource, TimelineSubject};

/// Checks that a row of an agent is under the cursor.
pub fn check_agent(model: &Model) -> Result<(), String> {
    let row = model.archives.current_row();
    require(row.is_some(), "no agent under the cursor")
}

/// Opens the timeline of the agent of the row under the cursor.
pub fn open(model: &mut Model) -> Result<Vec<Effect>, String> {
    let subject = match model.archives.subject_source().ok_or(NO_ENTRY_REASON)? {
        TextSource::Entry(path) => TimelineSubject::Entry(path),
        TextSource::Memory(agent) | TextSource::MemoryFile { agent, .. } => {
            TimelineSubject::Agent(agent)
        }
    };
    let page = model.archives.page;
    let view = &mut model.archives.timeline;
    if view.is_open {
        // The text was opened from it.
        model.archives.page = ArchivesPage::Timeline;
        return Ok(Vec::new());
    }
    view.is_open = true;
    view.is_opened_from_text = page == ArchivesPage::Text;
    view.loaded = None;
    view.list = Default::default();
    model.archives.page = ArchivesPage::Timeline;
    Ok(vec![request(model, subject)])
}

/// Requests the timeline again if that is due: a run may have added to it.
pub fn request_due(model: &mut Model) -> Option<Effect> {
    let view = &mut model.archives.timeline;
    let is_due = std::mem::take(&mut view.is_due) && view.is_open;
    let subject = view.subject.clone().filter(|_| is_due)?;
    Some(request(model, subject))
}

fn request(model: &mut Model, subject: TimelineSubject) -> Effect {
    let view = &mut model.archives.timeline;
    view.subject = Some(subject.clone());
    Effect::LoadTimeline(view.requests.begin(), subject)
}

/// Shows a timeline, unless a later one was requested. The cursor stays on its row.
pub fn handle_loaded(model: &mut Model, number: u64, loaded: Result<Box<AgentTimeline>, String>) {
    if !model.archives.timeline.requests.accept(number) {
        return;
    }
    if let Err(why) = &loaded {
        model.report_error(why.clone());
    }
    let view = &mut model.archives.timeline;
    view.list = view.list.pinned(view.rows());
    view.loaded = Some(loaded.map(|timeline| *timeline));
    model.is_dirty |= model.screen == Screen::Archives && model.archives.timeline.is_open;
}

/// Opens the text of the entry of the row under the cursor.
pub fn open_selected(model: &mut Model) -> Result<(), String> {
    model.archives.timeline.current_entry()?;
    model.archives.page = ArchivesPage::Text;
    model.is_dirty = true;
    Ok(())
}

/// Goes back to where it was opened.
pub fn close(model: &mut Model) {
    let view = &mut model.archives.timeline;
    view.is_open = false;
    model.archives.page = if view.is_opened_from_text {
        ArchivesPage::Text
    } else {
        ArchivesPage::List
    };
}

/// Moves the cursor by rows.
pub fn move_cursor(model: &mut Model, by: isize) {
    let view = &mut model.archives.timeline;
    view.list = view.list.stepped(by, view.rows());
}

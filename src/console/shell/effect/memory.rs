//! Jobs of memories with a layout: their items page by page, the content of an item, their checks, and
//! the files that an operation changes. Each host has its own classes of jobs.

use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};

use super::EffectRunner;
use super::agent_texts::DIFF_TIMEOUT;
use super::job_queue::{JobClass, Request};
use crate::base::error::Result;
use crate::config::SshHost;
use crate::console::message::Msg;
use crate::console::screens::agent::state::memory::{
    ItemContentRequest, ItemPage, ItemsRequest, OpenedMemory,
};
use crate::console::screens::reset::state::FileChangesRequest;
use crate::console::text::{self, PreparedText};
use crate::engine::Engine;

/// How long an open collection waits for a request of more items: it may keep a directory open, on this
/// machine or a host.
pub(super) const MAX_ITEMS_WAIT: Duration = Duration::from_secs(60);

/// The collection whose items are read: the number of its request, and where more of them are
/// requested. Dropping it ends the job.
pub(super) struct ItemDemand {
    number: u64,
    wanted: Sender<usize>,
}

/// Reads items, or lets the job that has the collection open read more of them.
pub(super) fn read_items(runner: &mut EffectRunner, request: ItemsRequest) {
    let is_continued = |open: &&ItemDemand| open.number == request.number && request.loaded > 0;
    let open = runner.item_demand.as_ref().filter(is_continued);
    if open.is_some_and(|open| open.wanted.send(request.wanted).is_ok()) {
        return;
    }
    let (wanted, demand) = unbounded();
    let number = request.number;
    runner.item_demand = Some(ItemDemand { number, wanted });
    let class = JobClass::MemoryItems(host_of(runner, &request.agent));
    let messages = runner.messages.clone();
    runner.submit(Request::latest(class, "items"), move |engine| {
        let read = engine.and_then(|it| serve_items(it, &request, demand, &messages));
        match read {
            Ok(()) => Msg::ItemsPaused(number),
            Err(error) => Msg::ItemsRead(number, Err(error.to_line())),
        }
    });
}

pub(super) fn read_item_content(runner: &EffectRunner, request: ItemContentRequest) {
    let class = JobClass::MemoryTexts(host_of(runner, &request.agent));
    runner.submit(Request::latest(class, "content"), move |engine| {
        let text = engine.and_then(|it| prepare_content(it, &request));
        Msg::ItemContentRead(request, text.map_err(|error| error.to_line()))
    });
}

pub(super) fn check_memory(runner: &EffectRunner, number: u64, agent: String) {
    let class = JobClass::MemoryChecks(host_of(runner, &agent));
    let request = Request::latest(class, "health").listed_as(format!("health of {agent}"));
    runner.submit(request, move |engine| {
        let findings = engine.and_then(|engine| engine.health().check(engine.agent(&agent)?));
        Msg::MemoryChecked(number, findings.map_err(|error| error.to_line()))
    });
}

pub(super) fn compare_file_changes(runner: &EffectRunner, changes: FileChangesRequest) {
    let request = Request::latest(JobClass::Plan, "file changes");
    runner.submit(request, move |engine| {
        let compared = engine.and_then(|it| prepare_file_changes(it, &changes));
        let text = compared.unwrap_or_else(|error| PreparedText::note(error.to_line()));
        Msg::FileChangesCompared(changes, text)
    });
}

/// Returns the host of an agent; none for this machine.
fn host_of(runner: &EffectRunner, agent: &str) -> Option<SshHost> {
    runner.engine.agent(agent).ok()?.host().cloned()
}

/// Opens a memory, and sends the pages of a collection as they come. Where enough items are read, waits
/// until more are requested; ends when they are not, or the collection is not wanted any more.
fn serve_items(
    engine: &Engine,
    request: &ItemsRequest,
    demand: Receiver<usize>,
    messages: &Sender<Msg>,
) -> Result<()> {
    let memory = match engine.layouts().open(&request.agent) {
        Ok(memory) => memory,
        Err(error) => return send_failure(request, error.to_line(), messages),
    };
    let collections = match memory.collections() {
        Ok(collections) => collections,
        Err(error) => return send_failure(request, error.to_line(), messages),
    };
    let wanted_id = request.collection.as_ref();
    let found = collections.iter().find(|it| Some(&it.id) == wanted_id);
    let id = found.or(collections.first()).map(|it| it.id.clone());
    let opened = OpenedMemory {
        layout: memory.layout.name(),
        operations: memory.layout.operations(),
        collection: id.clone(),
        collections,
    };
    // The main thread may have ended.
    let _ = messages.send(Msg::MemoryOpened(request.number, Ok(Box::new(opened))));
    let send_page = |items, is_last| {
        let page = ItemPage { items, is_last };
        messages
            .send(Msg::ItemsRead(request.number, Ok(page)))
            .is_ok()
    };
    let Some(id) = id else {
        send_page(Vec::new(), true);
        return Ok(());
    };
    // Another collection than the requested one is shown from its beginning.
    let loaded = if Some(&id) == wanted_id {
        request.loaded
    } else {
        0
    };
    let (mut read, mut wanted) = (0, request.wanted);
    for page in memory.layout.items(&memory.files, &id)? {
        let mut items = page?;
        let known = loaded.saturating_sub(read).min(items.len());
        read += items.len();
        items.drain(..known);
        for item in &mut items {
            item.modified = item.modified.map(|time| engine.clock().zone().at(time));
        }
        if !items.is_empty() && !send_page(items, false) {
            return Ok(());
        }
        if !wait_for_demand(&demand, &mut wanted, read) {
            return Ok(());
        }
    }
    send_page(Vec::new(), true);
    Ok(())
}

/// Answers a request for items of a memory that cannot be opened.
fn send_failure(request: &ItemsRequest, why: String, messages: &Sender<Msg>) -> Result<()> {
    // The main thread may have ended.
    let _ = messages.send(Msg::MemoryOpened(request.number, Err(why)));
    Ok(())
}

/// Waits until more items are wanted than were read. Returns false if that does not happen in time.
fn wait_for_demand(demand: &Receiver<usize>, wanted: &mut usize, read: usize) -> bool {
    loop {
        let more = match demand.try_recv() {
            Err(TryRecvError::Disconnected) => return false,
            Err(TryRecvError::Empty) if read < *wanted => return true,
            Err(TryRecvError::Empty) => match demand.recv_timeout(MAX_ITEMS_WAIT) {
                Ok(more) => more,
                Err(_) => return false,
            },
            Ok(more) => more,
        };
        *wanted = more.max(*wanted);
    }
}

fn prepare_content(engine: &Engine, request: &ItemContentRequest) -> Result<PreparedText> {
    let memory = engine.layouts().open(&request.agent)?;
    let collection = request.collection.as_deref();
    let content = memory
        .layout
        .read(&memory.files, collection, &request.item)?;
    Ok(text::prepare_item(&content))
}

/// Compares the files of an operation with what it makes of them. Where one has changed since the plan
/// was made, only its sizes in the plan are known.
fn prepare_file_changes(engine: &Engine, changes: &FileChangesRequest) -> Result<PreparedText> {
    let edits = match &changes.operation {
        Some(operation) => {
            let memory = engine.layouts().open(&changes.agent)?;
            let planned = engine.layouts().plan_operation(&memory, operation)?;
            planned.edits
        }
        None => engine
            .layouts()
            .undone_edits(&changes.agent, &changes.files)?,
    };
    let deadline = engine.clock().instant() + DIFF_TIMEOUT;
    Ok(text::prepare_file_changes(changes, &edits, Some(deadline)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collection_is_read_as_far_as_is_wanted() {
        let (sender, demand) = unbounded();
        let mut wanted = 200;
        assert!(wait_for_demand(&demand, &mut wanted, 199));
        sender.send(400).unwrap();
        assert!(
            wait_for_demand(&demand, &mut wanted, 200),
            "more was requested"
        );
        sender.send(300).unwrap();
        assert!(wait_for_demand(&demand, &mut wanted, 399));
        assert_eq!(wanted, 400, "a smaller request takes nothing back");
        // Nothing more is read once another collection is wanted.
        drop(sender);
        assert!(!wait_for_demand(&demand, &mut wanted, 10));
    }
}

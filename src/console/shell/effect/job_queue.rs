//! Job queue: runs work that may wait for a disk or a host, and sends the message in which each
//! job ends. Jobs of one class run in order on the threads of that class; no class waits for
//! another. A thread starts when its class has work and ends when no job of the class is queued.
//! The queue knows which jobs have not ended, which the log lists.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crossbeam_channel::Sender;

use crate::base::error::{Error, Result};
use crate::config::SshHost;
use crate::console::message::Msg;
use crate::console::screens::log::state::MessageLevel;

/// Class of jobs that share threads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum JobClass {
    Plan,
    HostSettings,
    History,
    /// Clipboard, archive entries and baselines.
    Handoff,
    /// The list of baselines, which lints all of them.
    BaselineList,
    /// Versions of a baseline, and two of them compared.
    BaselineTexts,
    /// Plans over baselines. A slow list must not keep a restore waiting.
    BaselinePlans,
    Verify,
    /// Searches of the archives, which also update the index.
    ArchiveSearch,
    /// Texts of entries, and entries compared. A slow search must not keep them waiting.
    ArchiveTexts,
    /// Timelines of agents, which read the ledger.
    Timeline,
    /// Overviews of retention, and prunes.
    Retention,
    /// Questions to service managers.
    Schedule,
    /// Pauses and skips, which wait for no service manager.
    ScheduleChanges,
    /// The ledger, the config and the saved observations.
    FleetFiles,
    /// Items of memories with a layout on a host; `None` for this machine. A job of it waits while its
    /// collection is open.
    MemoryItems(Option<SshHost>),
    /// Contents of these items.
    MemoryTexts(Option<SshHost>),
    /// Checks of these memories.
    MemoryChecks(Option<SshHost>),
    /// Texts and patches of the agents of a host; `None` for this machine.
    Texts(Option<SshHost>),
    Tones,
    /// Tones of the text in the editor.
    Analysis,
    /// Comparisons, merges and saves of the editor, and checks of its file, in this order.
    Editor,
    /// Drafts of the editor.
    Drafts,
    /// Themes, and texts for the pager.
    UserFiles,
}

impl JobClass {
    fn max_threads(&self) -> usize {
        match self {
            // A plan that waits for a host must not delay the others.
            JobClass::Plan => 4,
            _ => 1,
        }
    }
}

/// What a job asks of the queue: its threads, which queued job it replaces, and its row in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    class: JobClass,
    key: Option<String>,
    label: Option<String>,
}

impl From<JobClass> for Request {
    /// Requests a job that runs in any case and has no row in the log.
    fn from(class: JobClass) -> Request {
        Request {
            class,
            key: None,
            label: None,
        }
    }
}

impl Request {
    /// Requests a job that runs in any case, and names it in the log.
    pub(super) fn listed(class: JobClass, label: impl Into<String>) -> Request {
        Request::from(class).listed_as(label)
    }

    /// Requests a job of which only the newest matters: it replaces a queued one of its class with
    /// the same key.
    pub(super) fn latest(class: JobClass, key: impl Into<String>) -> Request {
        Request {
            key: Some(key.into()),
            ..Request::from(class)
        }
    }

    /// Names the job in the log.
    pub(super) fn listed_as(self, label: impl Into<String>) -> Request {
        Request {
            label: Some(label.into()),
            ..self
        }
    }
}

/// Work of a job; returns the message in which it ends, if any. Gets an error if no thread can be
/// started for it, which it only puts into that message.
type Work = Box<dyn FnOnce(Result<()>) -> Option<Msg> + Send>;

/// Queue of jobs. Dropping it lets the queued jobs finish.
#[derive(Clone)]
pub(super) struct JobQueue {
    messages: Sender<Msg>,
    classes: Arc<Mutex<HashMap<JobClass, ClassState>>>,
}

#[derive(Default)]
struct ClassState {
    queued: VecDeque<(Request, Work)>,
    running: Vec<Request>,
    threads: usize,
}

impl ClassState {
    /// Returns the labels of the jobs that have not ended, without those that a queued job is to
    /// follow.
    fn labels(&self) -> impl Iterator<Item = &String> {
        let queued = self.queued.iter().map(|(request, _)| request);
        let is_followed = |running: &&Request| {
            let mut queued = self.queued.iter();
            running.key.is_some() && queued.any(|(request, _)| request.key == running.key)
        };
        let running = self.running.iter().filter(move |it| !is_followed(it));
        running.chain(queued).filter_map(|it| it.label.as_ref())
    }
}

impl JobQueue {
    pub(super) fn new(messages: Sender<Msg>) -> JobQueue {
        JobQueue {
            messages,
            classes: Arc::default(),
        }
    }

    /// Queues a job.
    pub(super) fn submit(
        &self,
        request: impl Into<Request>,
        work: impl FnOnce(Result<()>) -> Option<Msg> + Send + 'static,
    ) {
        let request = request.into();
        let class = request.class.clone();
        let mut classes = self.lock_classes();
        let state = classes.entry(class.clone()).or_default();
        if request.key.is_some() {
            state.queued.retain(|(queued, _)| queued.key != request.key);
        }
        state.queued.push_back((request, Box::new(work)));
        if state.threads < class.max_threads() {
            state.threads += 1;
            drop(classes);
            let (queue, own_class) = (self.clone(), class.clone());
            let started = thread::Builder::new().spawn(move || queue.run_jobs(&own_class));
            if let Err(error) = started {
                self.handle_failed_start(&class, &error);
            }
        }
    }

    /// Ends the jobs of a class for which no thread can be started, unless another one runs.
    /// Each request is answered with the error; a job without an answer reports it.
    fn handle_failed_start(&self, class: &JobClass, error: &io::Error) {
        let refused_jobs = match self.lock_classes().get_mut(class) {
            Some(state) => {
                state.threads -= 1;
                if state.threads == 0 {
                    std::mem::take(&mut state.queued)
                } else {
                    VecDeque::new()
                }
            }
            None => VecDeque::new(),
        };
        let error = Error::from_thread_start(error);
        for (_, work) in refused_jobs {
            let answer = run_reporting_panic(|| work(Err(error.clone())))
                .unwrap_or_else(|| Msg::Reported(MessageLevel::Error, error.to_string()));
            // Does not wait: the main thread, which reads the messages, calls this.
            let _ = self.messages.try_send(answer);
        }
    }

    /// Refuses the threads of a class while `submit` submits jobs of it.
    #[cfg(test)]
    pub(super) fn refuse_threads(&self, class: JobClass, submit: impl FnOnce()) {
        let count = class.max_threads();
        let state = ClassState {
            threads: count,
            ..ClassState::default()
        };
        self.lock_classes().insert(class.clone(), state);
        submit();
        for _ in 0..count {
            self.handle_failed_start(&class, &io::ErrorKind::WouldBlock.into());
        }
    }

    /// Sends a message; returns false if the main thread has ended.
    pub(super) fn send(&self, message: Msg) -> bool {
        self.messages.send(message).is_ok()
    }

    /// Runs the queued jobs of a class until there are none.
    fn run_jobs(&self, class: &JobClass) {
        while let Some((request, work)) = self.next_job(class) {
            let message = run_reporting_panic(|| work(Ok(())));
            self.end_job(&request);
            if let Some(message) = message
                && !self.send(message)
            {
                self.lock_classes().remove(class);
            }
        }
    }

    /// Takes the next job of a class, or counts a thread of the class as ended.
    fn next_job(&self, class: &JobClass) -> Option<(Request, Work)> {
        let mut classes = self.lock_classes();
        let state = classes.get_mut(class)?;
        let next = state.queued.pop_front();
        match &next {
            Some((request, _)) => state.running.push(request.clone()),
            None => state.threads -= 1,
        }
        next
    }

    fn end_job(&self, ended: &Request) {
        if let Some(state) = self.lock_classes().get_mut(&ended.class)
            && let Some(at) = state.running.iter().position(|it| it == ended)
        {
            state.running.swap_remove(at);
        }
    }

    /// Returns the labels of the jobs that have not ended.
    pub(super) fn job_labels(&self) -> Vec<String> {
        let classes = self.lock_classes();
        let labels = classes.values().flat_map(ClassState::labels);
        labels.cloned().collect()
    }

    fn lock_classes(&self) -> MutexGuard<'_, HashMap<JobClass, ClassState>> {
        self.classes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a thread for work that lasts and so is not a job.
///
/// # Errors
/// The system refuses the thread.
pub(super) fn spawn_reporting_panic(
    messages: Sender<Msg>,
    work: impl FnOnce() + Send + 'static,
) -> Result<()> {
    let started = thread::Builder::new().spawn(move || {
        let work = || {
            work();
            None
        };
        if let Some(message) = run_reporting_panic(work) {
            let _ = messages.send(message);
        }
    });
    started
        .map(drop)
        .map_err(|error| Error::from_thread_start(&error))
}

/// Runs work; returns a message to the operator if it panics.
fn run_reporting_panic(work: impl FnOnce() -> Option<Msg>) -> Option<Msg> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let text = "a fault in this program stopped a part of it; leave and start it again, and please report it";
        Some(Msg::Reported(MessageLevel::Error, text.to_string()))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use crossbeam_channel::{Receiver, bounded, unbounded};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn queue() -> (JobQueue, Receiver<Msg>) {
        let (messages, inbox) = unbounded();
        (JobQueue::new(messages), inbox)
    }

    fn report(text: &str) -> Option<Msg> {
        Some(Msg::Reported(MessageLevel::Info, text.to_string()))
    }

    fn next_text(inbox: &Receiver<Msg>) -> String {
        match inbox.recv_timeout(TIMEOUT) {
            Ok(Msg::Reported(_, text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn refused_jobs_are_answered_and_queue_goes_on() {
        let (queue, inbox) = queue();
        let class = JobClass::History;
        queue.refuse_threads(class.clone(), || {
            queue.submit(class.clone(), |_| None);
            queue.submit(class.clone(), |started| {
                report(&format!("answer: {}", started.unwrap_err()))
            });
        });
        assert!(next_text(&inbox).starts_with("cannot start a thread: "));
        assert!(next_text(&inbox).starts_with("answer: cannot start a thread: "));
        queue.submit(class, |_| report("next"));
        assert_eq!(next_text(&inbox), "next");
    }

    #[test]
    fn hung_job_delays_no_other_class() {
        let (queue, inbox) = queue();
        let (release, released) = bounded::<()>(0);
        queue.submit(JobClass::History, move |_| {
            let _ = released.recv();
            report("hung")
        });
        for text in ["first", "second"] {
            queue.submit(JobClass::FleetFiles, move |_| report(text));
        }
        assert_eq!(next_text(&inbox), "first");
        assert_eq!(next_text(&inbox), "second");
        drop(release);
        assert_eq!(next_text(&inbox), "hung");
    }

    #[test]
    fn queued_job_is_replaced_by_newer_one() {
        let (queue, inbox) = queue();
        let (started, is_started) = unbounded();
        let (release, released) = bounded::<()>(0);
        let newest = || Request::latest(JobClass::History, "history").listed_as("history of alpha");
        queue.submit(newest(), move |_| {
            let _ = started.send(());
            let _ = released.recv();
            report("running")
        });
        is_started.recv_timeout(TIMEOUT).unwrap();
        let other = Request::latest(JobClass::History, "run diff").listed_as("run diff of alpha");
        queue.submit(newest(), |_| report("replaced"));
        queue.submit(other, |_| report("other"));
        queue.submit(JobClass::History, |_| report("kept"));
        queue.submit(JobClass::History, |_| report("kept as well"));
        queue.submit(newest(), |_| report("newest"));
        drop(release);
        for text in ["running", "other", "kept", "kept as well", "newest"] {
            assert_eq!(next_text(&inbox), text);
        }
        assert!(inbox.is_empty());
    }

    #[test]
    fn plans_run_on_bounded_number_of_threads() {
        let (queue, inbox) = queue();
        let threads = JobClass::Plan.max_threads();
        let barrier = Arc::new(Barrier::new(threads + 1));
        for _ in 0..2 * threads {
            let barrier = Arc::clone(&barrier);
            queue.submit(JobClass::Plan, move |_| {
                barrier.wait();
                report("planned")
            });
        }
        assert_eq!(queue.lock_classes()[&JobClass::Plan].threads, threads);
        for _ in 0..2 {
            barrier.wait();
            for _ in 0..threads {
                assert_eq!(next_text(&inbox), "planned");
            }
        }
    }

    #[test]
    fn panic_is_reported_and_next_job_runs() {
        let (queue, inbox) = queue();
        queue.submit(JobClass::Handoff, |_| panic!("expected by this test"));
        queue.submit(JobClass::Handoff, |_| report("next"));
        assert!(next_text(&inbox).starts_with("a fault in this program"));
        assert_eq!(next_text(&inbox), "next");
    }

    #[test]
    fn end_of_main_thread_drops_queued_jobs() {
        let (queue, inbox) = queue();
        let (release, released) = bounded::<()>(0);
        let (ran, has_run) = unbounded::<()>();
        queue.submit(JobClass::Handoff, move |_| {
            let _ = released.recv();
            report("unheard")
        });
        queue.submit(JobClass::Handoff, move |_| {
            let _ = ran.send(());
            None
        });
        drop((inbox, release));
        assert!(has_run.recv_timeout(TIMEOUT).is_err());
    }

    #[test]
    fn jobs_are_listed_until_they_end() {
        let (queue, inbox) = queue();
        let (started, is_started) = unbounded();
        let (release, released) = bounded::<()>(0);
        let texts = |agent: &str| {
            Request::latest(JobClass::Tones, "texts").listed_as(format!("texts of {agent}"))
        };
        queue.submit(texts("alpha"), move |_| {
            let _ = started.send(());
            let _ = released.recv();
            report("running")
        });
        is_started.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(queue.job_labels(), ["texts of alpha"]);
        // What runs is of no use any more, and what is replaced never runs.
        queue.submit(texts("bravo"), |_| report("replaced"));
        queue.submit(texts("charlie"), |_| report("newest"));
        assert_eq!(queue.job_labels(), ["texts of charlie"]);
        queue.submit(JobClass::Tones, |_| report("unlisted"));
        let every = Request::listed(JobClass::Tones, "every");
        queue.submit(every.clone(), |_| report("every"));
        queue.submit(every, |_| panic!("expected by this test"));
        assert_eq!(queue.job_labels(), ["texts of charlie", "every", "every"]);
        drop(release);
        for text in ["running", "newest", "unlisted", "every"] {
            assert_eq!(next_text(&inbox), text);
        }
        assert!(next_text(&inbox).starts_with("a fault in this program"));
        // A job has ended when its message is sent.
        assert_eq!(queue.job_labels(), [""; 0]);
        queue.refuse_threads(JobClass::Plan, || {
            let plan = Request::listed(JobClass::Plan, "plan for alpha");
            queue.submit(plan, |_| report("refused"));
        });
        assert_eq!(queue.job_labels(), [""; 0]);
    }
}

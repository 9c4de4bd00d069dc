//! The memories of several files that agents have beside the one that is reset.

use std::path::Path;
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::engine::context::Context;
use crate::engine::layout_memory::LayoutMemory;
use crate::engine::runs::plan::{Plan, PlannedFile};
use crate::engine::runs::{Planner, edit};
use crate::layouts::{
    ArgumentForm, FileEdit, Layout, MemoryFiles, OperationRequest, PlanFailure, PlannedOperation,
};

/// Opens the memories of several files, and plans operations on them.
pub struct LayoutMemories {
    context: Arc<Context>,
    planner: Arc<Planner>,
}

/// What an operation would do, and the plan that does it.
#[derive(Debug)]
pub struct OperationPlan {
    /// What the layout says of it.
    pub operation: PlannedOperation,
    /// The plan, which holds as long as the files that the operation changes are as they are now.
    pub plan: Plan,
}

impl LayoutMemories {
    pub(super) fn new(context: &Arc<Context>, planner: &Arc<Planner>) -> LayoutMemories {
        LayoutMemories {
            context: Arc::clone(context),
            planner: Arc::clone(planner),
        }
    }

    /// Opens the memory of an agent. Nothing is read yet.
    ///
    /// # Errors
    /// [`ErrorKind::User`]: the agent is not configured, or has no such memory.
    pub fn open(&self, agent: &str) -> Result<LayoutMemory> {
        self.context.open_layout_memory(self.context.agent(agent)?)
    }

    /// Plans an operation on the memory of an agent.
    ///
    /// # Errors
    /// The agent has no such memory, its files cannot be read, or the operation is not possible.
    pub fn plan(
        &self,
        agent: &str,
        request: &OperationRequest,
        is_unlocked: bool,
    ) -> Result<OperationPlan, PlanFailure> {
        let memory = self.open(agent)?;
        let operation = self.plan_operation(&memory, request)?;
        let basis = operation.basis.as_deref();
        let root = memory.files.root();
        let mut plan = self
            .planner
            .plan_edit(agent, root, &operation.edits, basis, is_unlocked)?;
        for step in &mut plan.steps {
            step.purpose = Some(purpose_of(memory.layout, request));
        }
        Ok(OperationPlan { operation, plan })
    }

    /// Returns the contents of the files that the plan of an undo changes, where they are known and small
    /// enough to compare.
    ///
    /// # Errors
    /// [`ErrorKind::User`]: the agent has no such memory.
    pub fn undone_edits(&self, agent: &str, files: &[PlannedFile]) -> Result<Vec<FileEdit>> {
        Ok(edit::undone_edits(&self.context, &self.open(agent)?, files))
    }

    /// Returns what an operation would do, without a plan to do it.
    ///
    /// # Errors
    /// The files cannot be read, or the operation is not possible.
    pub fn plan_operation(
        &self,
        memory: &LayoutMemory,
        request: &OperationRequest,
    ) -> Result<PlannedOperation, PlanFailure> {
        request.check(memory.layout)?;
        check_directories(memory.layout, request)?;
        let record = record_of(memory.layout, request).map(|path| {
            let transport = self.context.local_transport();
            MemoryFiles::new(transport, Path::new(path))
        });
        memory.layout.plan(&memory.files, record.as_ref(), request)
    }
}

/// Describes an operation by its name and what it is about, for the ledger.
fn purpose_of(layout: &dyn Layout, request: &OperationRequest) -> String {
    let mut specs = layout.operations().iter();
    let spec = specs.find(|spec| spec.name == request.operation);
    let mut arguments = spec.into_iter().flat_map(|spec| spec.arguments);
    let subject = arguments.find(|it| it.is_positional());
    match subject.and_then(|argument| request.value(argument.name)) {
        Some(subject) => format!("{} {subject}", request.operation),
        None => request.operation.clone(),
    }
}

/// Checks that the directories of this machine in a request are absolute: relative ones would begin
/// where the program was started.
fn check_directories(layout: &dyn Layout, request: &OperationRequest) -> Result<()> {
    let specs = layout.operations().iter();
    let spec = specs.filter(|spec| spec.name == request.operation);
    for argument in spec.flat_map(|spec| spec.arguments) {
        let is_directory = matches!(
            argument.form,
            ArgumentForm::Directory | ArgumentForm::Record
        );
        let path = request.value(argument.name).filter(|_| is_directory);
        if let Some(path) = path.filter(|path| !Path::new(path).is_absolute()) {
            let message = format!("{} is not an absolute path: {path}", argument.name);
            return Err(Error::new(ErrorKind::User, message));
        }
    }
    Ok(())
}

/// Returns the directory of this machine that an operation reads.
fn record_of<'r>(layout: &dyn Layout, request: &'r OperationRequest) -> Option<&'r str> {
    let mut specs = layout.operations().iter();
    let spec = specs.find(|spec| spec.name == request.operation)?;
    let mut arguments = spec.arguments.iter();
    let argument = arguments.find(|it| it.form == ArgumentForm::Record)?;
    request.value(argument.name)
}

"""What workflows do, written down naively: everything is found out anew after every step.

It knows jobs by their ids only, and nothing of shards, batches, counters or messages.
"""

from stoker.model.states import ENDED, State
from stoker.model.workflows import Step, WorkflowState


class ReferenceStep:
    def __init__(self, step: Step, ids: list[int]) -> None:
        self.after = [(edge.step, edge.on_failure) for edge in step.after]
        self.is_open = step.open
        self.released = not self.after
        self.skipped = False
        self.jobs: dict[int, State] = {}
        self.because: set[int] = set()
        """Jobs that ended because of a step before."""
        self.add(ids)

    def add(self, ids: list[int]) -> None:
        self.jobs |= dict.fromkeys(ids, State.WAITING if self.released else State.BLOCKED)

    @property
    def failing(self) -> bool:
        return self.skipped or any(state in ENDED and state is not State.COMPLETED for state in self.jobs.values())

    @property
    def ended(self) -> bool:
        if not self.jobs:
            return self.skipped or self.released
        return all(state in ENDED for state in self.jobs.values())


class ReferenceWorkflow:
    def __init__(self, steps: list[Step], ids: list[list[int]]) -> None:
        self.steps = [ReferenceStep(step, own) for step, own in zip(steps, ids, strict=True)]
        self.cancelled = False
        self.settle()

    def step_of(self, job: int) -> ReferenceStep:
        return next(step for step in self.steps if job in step.jobs)

    def move(self, job: int, state: State) -> None:
        self.step_of(job).jobs[job] = state
        self.settle()

    def fill(self, number: int, ids: list[int]) -> None:
        self.steps[number].add(ids)

    def cancel(self) -> None:
        self.cancelled = True
        for step in self.steps:
            for job, state in step.jobs.items():
                if state in (State.WAITING, State.BLOCKED):
                    step.jobs[job] = State.CANCELLED
            if not step.jobs:
                step.skipped = True

    def retry(self) -> None:
        for step in self.steps:
            step.skipped = False
            for job, state in step.jobs.items():
                if state is State.FAILED:
                    step.jobs[job] = State.WAITING if step.released else State.BLOCKED
        self.settle()

    def settle(self) -> None:
        """Let everything follow from what has happened, until nothing more does."""
        changed = not self.cancelled
        while changed:
            changed = sum(self.judge(step) for step in self.steps) > 0

    def judge(self, step: ReferenceStep) -> bool:
        if step.released:
            return False
        before = [(self.steps[number], policy) for number, policy in step.after]
        if all(other.ended and (policy == "continue" or not other.failing) for other, policy in before):
            step.released = True
            for job, state in step.jobs.items():
                if state is State.BLOCKED:
                    step.jobs[job] = State.WAITING
            return True
        for other, policy in before:
            if policy != "continue" and other.failing:
                return self.give_up(step, State.FAILED if policy == "fail" else State.CANCELLED)
        return False

    @staticmethod
    def give_up(step: ReferenceStep, end: State) -> bool:
        blocked = [job for job, state in step.jobs.items() if state is State.BLOCKED]
        for job in blocked:
            step.jobs[job] = end
        if not step.jobs and not step.skipped:
            step.skipped = True
            return True
        return bool(blocked)

    @property
    def state(self) -> WorkflowState:
        if self.cancelled:
            return WorkflowState.CANCELLED
        if not all(step.ended for step in self.steps):
            return WorkflowState.RUNNING
        named = {number for step in self.steps for number, _ in step.after}
        sinks = [step for number, step in enumerate(self.steps) if number not in named]
        return WorkflowState.FAILED if any(step.failing for step in sinks) else WorkflowState.COMPLETED

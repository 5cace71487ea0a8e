"""SGLang's scheduler with a tiny model: its own grammar manager, requests, masks and results, in its order.

The loops are those of `Scheduler.event_loop_normal` and `event_loop_overlap`, and of the verification of
draft trees. Only the model, the sampler (greedy) and the drafts are ours. Import it where `stand_ins` runs.
"""

from __future__ import annotations

import contextlib
import random
from array import array
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import tokenizers
import torch
import transformers
from sglang.srt.constrained.grammar_manager import GrammarManager
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.managers.scheduler_components.batch_result_processor import (
    SchedulerBatchResultProcessor as Results,
)
from sglang.srt.runtime_context import get_context, get_parallel
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.speculative.spec_utils import GrammarTree, build_grammar_vocab_mask

from tests.pyaici.engines.batching.support import BOS, EOS, WIDTH, make_model

#: the text to which random drafts belong
_LETTERS = b'abcdefghijklmnopqrstuvwxyz0123456789{}":, '


def byte_tokenizer() -> Any:
    """Returns a tokenizer with a token for each byte, and the two special ones."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    bpe = tokenizers.models.BPE(vocab={letter: byte for byte, letter in letters.items()}, merges=[])
    tokenizer = tokenizers.Tokenizer(bpe)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    assert (fast.bos_token_id, fast.eos_token_id) == (BOS, EOS)
    fast.additional_stop_token_ids = None
    return fast


class Scheduler:
    """A scheduler with the backend `aici`."""

    def __init__(self, tokenizer: Any, *, overlap: bool = True, think_end_ids: Sequence[int] = ()) -> None:
        self.tokenizer = tokenizer
        self.server_args = get_context()._server_args
        self.model_config = SimpleNamespace(
            vocab_size=WIDTH, hf_eos_token_id={EOS}, think_end_ids=list(think_end_ids)
        )
        self.dp_tp_cpu_group, self.pp_group = None, None
        self.dp_tp_group = SimpleNamespace(world_size=1, first_rank=0, is_first_rank=True)
        self.grammar_manager = GrammarManager(self)
        self.overlap = overlap
        self.model = make_model()
        self.waiting: list[Req] = []
        self.running: list[Req] = []
        #: tokens on the device, which may be one ahead of a request's
        self.device: dict[str, list[int]] = {}
        self.pending: tuple[list[Req], list[int]] | None = None
        #: the next tokens of a request, where the model does not choose
        self.dictated: dict[str, list[int]] = {}

    @property
    def backend(self) -> Any:
        return self.grammar_manager.grammar_backend

    def add(self, prompt: bytes, *, reasoning: bool = False, **params: Any) -> Req:
        """Receives a request, as `Scheduler.handle_generate_request` does."""
        sampling = SamplingParams(**{"max_new_tokens": 40, "temperature": 0.0, **params})
        sampling.normalize(self.tokenizer)
        sampling.verify(WIDTH)
        rid, tokens = f"r{len(self.device)}", [BOS, *prompt]
        req = Req(
            rid, "", array("q", tokens), sampling,
            eos_token_ids={EOS}, vocab_size=WIDTH, require_reasoning=reasoning,
        )  # fmt: skip
        req.tokenizer = self.tokenizer
        self.device[rid] = tokens.copy()
        if not self.grammar_manager.process_req_with_grammar(req):
            self.waiting.append(req)
        return req

    def run(self, *reqs: Req, limit: int = 2000) -> None:
        """Makes steps until these requests have ended; those in which a grammar is prepared do not count."""
        while limit:
            if all(req.finished() for req in reqs):
                return
            self.step()
            limit -= not self.grammar_manager.has_waiting_grammars()
        raise AssertionError("the requests did not end")

    def step(self) -> None:
        """Makes one iteration of the scheduler's loop."""
        batch = self.next_batch()
        if not self.overlap:
            self.settle()
        logits = self.forward([self.device[req.rid] for req in batch]) if batch else None
        if self.overlap:
            self.settle()
        if logits is not None:
            tokens = self.sample(batch, logits)
            for req, token in zip(batch, tokens, strict=True):
                self.device[req.rid].append(token)
            self.pending = batch, tokens

    def next_batch(self) -> list[Req]:
        """Takes requests whose grammars are ready, and leaves out those that have ended."""
        if self.grammar_manager.has_waiting_grammars():
            self.waiting += self.grammar_manager.get_ready_grammar_requests()
        self.running = [req for req in self.running + self.waiting if not req.finished()]
        self.waiting = []
        return self.running.copy()

    @torch.no_grad()
    def forward(self, texts: list[list[int]]) -> torch.Tensor:
        """Returns the logits after each text, float32 [B, V]; ids that are no tokens cannot be sampled."""
        rows = torch.stack(
            [self.model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1] for text in texts]
        )
        rows[:, 258:] = -torch.inf
        return rows

    def sample(self, batch: list[Req], logits: torch.Tensor) -> list[int]:
        """Applies the masks as `ModelRunner.sample` does, and takes the best tokens."""
        if any(req.grammar for req in batch):
            info = SamplingBatchInfo.__new__(SamplingBatchInfo)
            info.temperatures, info.vocab_size, info.device = torch.ones(len(batch), 1), WIDTH, "cpu"
            info.grammars = [req.grammar for req in batch]
            info.update_regex_vocab_mask()
            info.grammar_mask.apply(logits)
        best = list(logits.argmax(dim=-1).tolist())
        return [
            self.dictated[req.rid].pop(0) if self.dictated.get(req.rid) else token
            for req, token in zip(batch, best, strict=True)
        ]

    def settle(self) -> None:
        """Processes the results of the last batch, as `process_batch_result_decode` does."""
        if self.pending is None:
            return
        (batch, tokens), self.pending = self.pending, None
        for req, token in zip(batch, tokens, strict=True):
            if req.finished():
                continue
            first = not req.output_ids
            req.output_ids.append(token)
            req.update_finish_state(1)
            if req.grammar is None:
                continue
            if first:
                Results._apply_prefill_grammar(self, req=req, next_token_id=token)
            else:
                Results._accept_grammar_tokens(self, req, token)
                req.grammar.finished = req.finished()


class DraftingScheduler(Scheduler):
    """A scheduler that verifies trees of drafts: some are what the model would write, others random."""

    def __init__(self, tokenizer: Any, *, seed: int) -> None:
        super().__init__(tokenizer, overlap=False)
        self.random = random.Random(seed)
        #: numbers of accepted drafts
        self.accepted: list[int] = []

    def step(self) -> None:
        batch = self.next_batch()
        fresh = [req for req in batch if not req.output_ids]
        if fresh:  # prefill, without drafts
            tokens = self.sample(fresh, self.forward([self.device[req.rid] for req in fresh]))
            for req, token in zip(fresh, tokens, strict=True):
                self.device[req.rid].append(token)
            self.pending = fresh, tokens
            self.settle()
            return
        if batch:
            self.verify(batch)

    def verify(self, batch: list[Req]) -> None:
        """Follows the drafts of each request, as `EagleVerify` does, and commits what was accepted."""
        drafts, following, sibling = (torch.full((len(batch), 6), -1) for _ in range(3))
        for i, req in enumerate(batch):
            good = self.continuation(self.device[req.rid])
            bad = [self.random.choice(_LETTERS) for _ in range(2)]
            # 0 -> 1 -> 2 -> 3, and 4 and 5 as further children of 0 and of 1
            drafts[i] = torch.tensor([self.device[req.rid][-1], *good, *bad])
            following[i], sibling[i] = (
                torch.tensor([1, 2, 3, -1, -1, -1]),
                torch.tensor([-1, 4, 5, -1, -1, -1]),
            )
        info = SimpleNamespace(vocab_size=WIDTH, grammar_mask=None)
        tree = GrammarTree.from_host(following, sibling, drafts)
        mask = build_grammar_vocab_mask(reqs=batch, tree=tree, sampling_info=info, device="cpu", barrier=None)
        paths = [[], [1], [1, 2], [1, 2, 3], [4], [1, 5]]
        for i, req in enumerate(batch):
            text = self.device[req.rid]
            logits = self.forward([[*text, *(int(drafts[i, node]) for node in path)] for path in paths])
            if mask is not None:
                mask._replace(vocab_mask=mask.vocab_mask[6 * i : 6 * i + 6]).apply(logits)
            best, run, path = logits.argmax(dim=-1).tolist(), [], []
            while True:
                token = best[paths.index(path)]
                run.append(token)
                nodes = [p[-1] for p in paths if p[:-1] == path and p and int(drafts[i, p[-1]]) == token]
                if not nodes:
                    break
                path = [*path, nodes[0]]
            self.accepted.append(len(run) - 1)
            if req.grammar is not None:
                run = Results._accept_grammar_tokens(self, req, run)
            text.extend(run)
            req.output_ids.extend(run)
            req.update_finish_state(len(run))
            if req.grammar is not None:
                req.grammar.finished = req.finished()

    def continuation(self, text: list[int]) -> list[int]:
        """Returns three drafts: what the model would write without a mask, or random letters."""
        drafts: list[int] = []
        for _ in range(3):
            guess = int(self.forward([[*text, *drafts]]).argmax()) if self.random.random() < 0.3 else None
            drafts.append(self.random.choice(_LETTERS) if guess is None else guess)
        return drafts


@contextlib.contextmanager
def scheduler(*, drafts: int | None = None, overlap: bool = True, **options: Any) -> Iterator[Any]:
    """A scheduler of a server with these options. `drafts`: the seed of its drafts, if it has some."""
    if drafts is not None:
        options |= {"speculative_algorithm": "EAGLE", "speculative_num_draft_tokens": 6}
    with (
        get_context().override_server_args(grammar_backend="aici", **options),
        get_parallel().override(pp_rank=0, tp_rank=0),
    ):
        tokenizer = byte_tokenizer()
        ends = tokenizer.encode("</think>", add_special_tokens=False) if "reasoning_parser" in options else ()
        made = (
            Scheduler(tokenizer, overlap=overlap, think_end_ids=ends)
            if drafts is None
            else DraftingScheduler(tokenizer, seed=drafts)
        )
        try:
            yield made
        finally:
            made.backend.close()


def outcome(req: Req) -> tuple[bytes, str, str]:
    """Returns the text of an ended request, its kind of end and the message of an error."""
    reason = req.finished_reason.to_json()
    tokens = list(req.output_ids)
    if reason["type"] == "stop" and tokens and tokens[-1] == EOS:
        tokens.pop()
    return bytes(token for token in tokens if token < 256), reason["type"], reason.get("message", "")

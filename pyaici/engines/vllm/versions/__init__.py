"""The versions of vLLM that AICI supports: the names that they must have, and the differences between them.

Nothing else asks for a version. Each difference is told by what vLLM has. This module imports vLLM only in
functions, because the plugin reads the names first.
"""

from __future__ import annotations

from typing import Any

#: Versions of vLLM that AICI accepts: the two newest minors. The extra `vllm` of pyproject.toml and
#: docs/support.md say the same
VERSIONS = ">=0.32,<0.34"

#: Modules, their classes and functions, and the members of these classes: methods, fields, and attributes of
#: instances. A name with parentheses is called or overridden. Its first parameters (without `self`) must be
#: those before `*`, in this order, and it must accept those after `*` by name. All its other parameters must
#: be optional, unless `...` stands for them. `__init__` is the constructor, also of a class without such a
#: method. `abstract` lists all abstract methods of a class.
NAMES = """
vllm
    __version__ LLM SamplingParams

vllm.config.model
    ModelConfig
        get_vocab_size()
        try_get_generation_config()
        max_model_len skip_tokenizer_init tokenizer

vllm.config.parallel
    ParallelConfig
        data_parallel_size data_parallel_size_local local_engines_only

vllm.config.scheduler
    SchedulerConfig
        get_scheduler_cls()
        max_num_seqs

vllm.config.vllm
    VllmConfig
        device_config model_config parallel_config scheduler_config speculative_config
        num_speculative_tokens use_v2_model_runner

vllm.entrypoints.llm
    LLM
        llm_engine

vllm.exceptions
    RetryableRequestError
        __init__(message)
    VLLMValidationError
        __init__(message)

vllm.outputs
    CompletionOutput
        finish_reason index logprobs stop_reason text token_ids
    RequestError
    RequestOutput
        add(next_output, ...)
        finished kv_transfer_params outputs request_id

vllm.sampling_params
    RequestOutputKind
        DELTA
    SamplingParams
        __init__(*, detokenize, extra_args, logprobs, max_tokens, n, output_kind, seed, temperature,
                 top_k, top_p)
        _eos_token_id all_stop_token_ids eos_token_id extra_args max_tokens min_tokens num_logprobs seed
        bad_words stop_token_ids

vllm.tokenizers
    cached_tokenizer_from_config(model_config)

vllm.v1.core.kv_cache_coordinator
    KVCacheCoordinator
        single_type_managers

vllm.v1.core.kv_cache_manager
    KVCacheManager
        allocate_slots(request, num_new_tokens, ...)
        coordinator

vllm.v1.core.sched.output
    GrammarOutput
        __init__(structured_output_request_ids, grammar_bitmask)
        structured_output_request_ids grammar_bitmask
    NewRequestData
        prefill_token_ids prompt_len req_id
    SchedulerOutput
        has_structured_output_requests num_invalid_spec_tokens scheduled_new_reqs scheduled_spec_decode_tokens
        total_num_scheduled_tokens

vllm.v1.core.sched.request_queue
    RequestQueue
        remove_request(request)

vllm.v1.core.sched.scheduler
    Scheduler
        __init__(...)
        _enqueue_waiting_request(request)
        _free_request(request, ...)
        _free_request_blocks(request)
        _preempt_request(request, timestamp, *, drop_stale_output)
        _update_request_with_output(request, new_token_ids, ...)
        add_request(request)
        finish_requests(request_ids, finished_status)
        get_grammar_bitmask(scheduler_output)
        schedule(...)
        shutdown()
        update_from_output(scheduler_output, model_runner_output)
        deferred_waiting encoder_cache_manager hash_block_size kv_cache_manager kv_holding_waiting
        max_model_len num_spec_tokens requests running structured_output_manager vllm_config waiting

vllm.v1.core.single_type_kv_cache_manager
    ChunkedLocalAttentionManager
        get_num_skipped_tokens(num_computed_tokens)
    CrossAttentionManager
    FullAttentionManager
    MambaManager
        mamba_cache_mode num_speculative_blocks
    SingleTypeKVCacheManager
        block_size num_cached_block req_to_blocks
    SinkFullAttentionManager
    SlidingWindowManager
        get_num_skipped_tokens(num_computed_tokens)

vllm.v1.engine
    EngineCoreOutput
        __init__(*, request_id, new_token_ids, new_logprobs, finish_reason, stop_reason, events,
                 prefill_stats)
        events finish_reason kv_transfer_params new_logprobs new_token_ids prefill_stats request_id
        stop_reason
    EngineCoreOutputs
        __init__(*, outputs)
        outputs
    FinishReason
        ERROR

vllm.v1.engine.async_llm
    AsyncLLM
        generate(prompt, sampling_params, *, reasoning_parser_kwargs, ...)

vllm.v1.engine.core
    DPEngineCoreProc
    EngineCore
        scheduler
    EngineCoreProc
        _process_input_queue()
        input_queue

vllm.v1.engine.core_client
    InprocClient
        engine_core

vllm.v1.engine.llm_engine
    LLMEngine
        abort_request(request_ids)
        add_request(request_id, prompt, params)
        get_tokenizer()
        step()
        engine_core vllm_config

vllm.v1.outputs
    LogprobsLists
        __init__(logprob_token_ids, logprobs, sampled_token_ranks)
        slice_request(req_idx, num_positions)
        logprob_token_ids logprobs sampled_token_ranks
    ModelRunnerOutput
        logprobs req_id_to_index

vllm.v1.request
    Request
        get_finished_reason()
        is_finished()
        update_block_hashes()
        _all_token_ids _output_token_ids block_hashes client_index drop_stale_output is_prefill_chunk
        max_tokens num_computed_tokens num_in_flight_tokens num_output_placeholders num_output_tokens
        num_preemptions num_prompt_tokens num_stale_output_tokens num_tokens prompt_token_ids request_id
        sampling_params spec_token_ids status stop_reason structured_output_request
    RequestStatus
        FINISHED_ABORTED FINISHED_ERROR FINISHED_LENGTH_CAPPED FINISHED_STOPPED RUNNING WAITING
        WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR

vllm.v1.sample.logits_processor
    LogitsProcessor
        validate_params(sampling_params)
        update_state(batch_update)
        apply(logits)
        is_argmax_invariant()
        abstract __init__ apply is_argmax_invariant update_state

vllm.v1.structured_output
    StructuredOutputManager
        clear_backend()
        _get_constraint_bounds(request, spec_tokens)
        _get_reasoner(request)
        _grammar_bitmask enable_in_reasoning reasoner_cls

vllm.v1.structured_output.backend_types
    StructuredOutputGrammar
        accept_tokens(request_id, tokens)
        fill_bitmask(bitmask, batch_index)
        is_terminated()
        reset()
        rollback(num_tokens)
        validate_tokens(tokens)
        abstract accept_tokens fill_bitmask is_terminated reset rollback validate_tokens

vllm.v1.structured_output.request
    StructuredOutputRequest
        __init__(*, params)
        grammar reasoning_ended reasoning_parser_kwargs

vllm.v1.worker.gpu.async_utils
    AsyncOutput
        model_runner_output

vllm.v1.worker.gpu.model_runner
    GPUModelRunner
        sample_tokens(grammar_output)
        execute_model_state is_last_pp_rank req_states sampler structured_outputs_worker

vllm.v1.worker.gpu.sample.logits_processor
    LogitsProcessor
        __init__(vllm_config, req_states)
        validate_params(sampling_params)
        add_request(req_idx, sampling_params)
        apply(logits, ctx)
        abstract apply

vllm.v1.worker.gpu.structured_outputs
    StructuredOutputsWorker
        apply_grammar_bitmask(logits, input_batch, grammar_req_ids, grammar_bitmask)

vllm.v1.worker.gpu_model_runner
    apply_grammar_bitmask(scheduler_output, grammar_output, input_batch, logits)
    AsyncGPUModelRunnerOutput
        _model_runner_output
    GPUModelRunner
        sample_tokens(grammar_output)
        _sample(...)
        _update_streaming_request(req_id, new_req_data)
        device execute_model_state input_batch requests

vllm.v1.worker.worker_base
    WorkerWrapperBase
        init_device()
"""


def errors_are_carried() -> bool:
    """Returns whether outputs carry an error, which `AsyncLLM` raises for the client: from 0.33 on.

    Before, only the stop reason says why a request has failed, and `frontend` turns it into an exception.
    """
    from vllm.v1.engine import EngineCoreOutput

    return "error" in EngineCoreOutput.__struct_fields__


def carry_error(output: Any, why: str, *, of_runtime: bool) -> None:
    """Has a client of `AsyncLLM` get an exception. `output`: the last EngineCoreOutput of a failed request.

    `of_runtime`: the client may try again; otherwise the request was wrong. Without `AsyncLLM` nothing is
    raised.
    """
    if errors_are_carried():
        from vllm.outputs import RequestError

        code = "controllers_unavailable" if of_runtime else "validation_error"
        output.error = RequestError(code, why, retryable=of_runtime)


def hash_lookahead(scheduler: Any) -> int:
    """Returns how many tokens after a block its hash depends on: from 0.33 on some, with EAGLE's drafts."""
    return getattr(scheduler, "num_hash_lookahead_tokens", 0)


def allow_all_ends_of_thinking(structured: Any) -> None:
    """Lets a request end its thinking with any token that the parser knows, such as that of a tool call.

    From 0.33 on, vLLM asks the grammar which of them may come, once for a request, and forbids the others.
    While the model thinks there is no controller to ask. The token is sampled again, under its mask.
    `structured`: a StructuredOutputRequest.
    """
    structured.masked_reasoning_end_ids = ()

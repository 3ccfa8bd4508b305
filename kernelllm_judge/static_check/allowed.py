# ruff: noqa: SIM905 (words are easier to read and to sort than quoted strings)
"""Lists what a kernel module may use: modules, the names in them, and attributes of objects.

Everything else is refused, so that a new release of torch or triton cannot widen what a candidate reaches. No name
listed here is a module or leads to one. In-place variants (``add_``) are not listed; they follow from ``add``.
"""

from __future__ import annotations

_BOTH = """
    abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr adjoint all allclose amax amin aminmax
    angle any arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort argwhere as_strided
    as_strided_scatter asin asinh atan atan2 atanh baddbmm bernoulli bfloat16 bincount bitwise_and
    bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm bool broadcast_to cdouble ceil
    cfloat chalf cholesky cholesky_inverse cholesky_solve chunk clamp clamp_max clamp_min clip clone conj
    conj_physical copysign corrcoef cos cosh count_nonzero cov cross cummax cummin cumprod cumsum deg2rad det
    detach diag diag_embed diagflat diagonal diagonal_scatter diff digamma dist div divide dot double dsplit eq
    equal erf erfc erfinv exp exp2 expm1 fix flatten flip fliplr flipud float float_power floor floor_divide
    fmax fmin fmod frac frexp gather gcd ge ger get_device greater greater_equal gt half hardshrink heaviside
    histc histogram hsplit hypot i0 igamma igammac imag index_add index_copy index_fill index_put index_reduce
    index_select inner int inverse is_complex is_conj is_floating_point is_neg is_nonzero is_same_size is_signed
    isclose isfinite isinf isnan isneginf isposinf isreal istft kron kthvalue lcm ldexp le lerp less less_equal
    lgamma log log10 log1p log2 log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not
    logical_or logical_xor logit logsumexp long lt lu lu_solve masked_fill masked_scatter masked_select matmul
    matrix_exp matrix_power max maximum mean median min minimum mm mode moveaxis movedim msort mul multinomial
    multiply mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow narrow_copy ne neg negative
    nextafter nonzero nonzero_static norm not_equal numel outer permute pinverse polygamma positive pow prelu
    prod put qr quantile rad2deg ravel real reciprocal relu remainder renorm repeat_interleave reshape
    resolve_conj resolve_neg roll rot90 round rsqrt scatter scatter_add scatter_reduce select select_scatter sgn
    short sigmoid sign signbit sin sinc sinh slice_inverse slice_scatter slogdet softmax sort split
    split_with_sizes sqrt square squeeze std stft sub subtract sum svd swapaxes swapdims t take take_along_dim
    tan tanh tensor_split tile topk trace transpose triangular_solve tril triu true_divide trunc unbind
    unflatten unique unique_consecutive unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze var vdot
    vsplit where xlogy
""".split()
"""Functions of torch that are also methods of tensors."""

_TORCH = """
    BoolTensor FloatTensor IntTensor LongTensor Size Tensor adaptive_avg_pool1d adaptive_max_pool1d
    alpha_dropout arange as_tensor asarray atleast_1d atleast_2d atleast_3d autocast avg_pool1d batch_norm
    bilinear binary_cross_entropy_with_logits block_diag broadcast_shapes broadcast_tensors bucketize can_cast
    cartesian_prod cat cdist celu chain_matmul channel_shuffle channels_last channels_last_3d column_stack
    complex complex128 complex32 complex64 concat concatenate constant_pad_nd contiguous_format conv1d conv2d
    conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution cosine_similarity cumulative_trapezoid
    device dropout dstack dtype e einsum embedding embedding_bag empty empty_like empty_permuted empty_strided
    enable_grad eye feature_dropout finfo float16 float32 float64 float8_e4m3fn float8_e5m2 full full_like
    get_default_dtype group_norm hstack iinfo inf inference_mode instance_norm int16 int32 int64 int8
    is_grad_enabled is_inference_mode_enabled is_tensor isin layer_norm layout linspace logspace lu_unpack
    max_pool1d max_pool2d max_pool3d memory_format meshgrid nan native_batch_norm native_dropout
    native_layer_norm newaxis no_grad normal ones ones_like pairwise_distance pdist pi pixel_shuffle
    pixel_unshuffle poisson polar preserve_format promote_types rand rand_like randint randint_like randn
    randn_like randperm range result_type rms_norm row_stack rrelu rsub scalar_tensor searchsorted
    segment_reduce selu stack std_mean strided tensor tensordot threshold trapezoid trapz tril_indices
    triu_indices uint16 uint32 uint64 uint8 unravel_index vander var_mean view_as_complex view_as_real vstack
    zeros zeros_like
""".split()

_METHODS = """
    H T byte char contiguous cpu cuda data device dim dim_order dtype element_size expand expand_as
    index is_contiguous is_cpu is_cuda is_meta is_sparse is_sparse_csr item itemsize layout mH mT nbytes ndim
    ndimension nelement new_empty new_empty_strided new_full new_ones new_tensor new_zeros repeat requires_grad
    reshape_as shape size stride sum_to_size to to_dense type type_as unfold view view_as
""".split()
"""Attributes and methods that only tensors have."""

_IN_PLACE = "cauchy_ copy_ exponential_ fill_ fill_diagonal_ geometric_ log_normal_ normal_ random_ uniform_ zero_".split()

_FUNCTIONAL = """
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
    adaptive_max_pool1d_with_indices adaptive_max_pool2d adaptive_max_pool2d_with_indices adaptive_max_pool3d
    adaptive_max_pool3d_with_indices affine_grid alpha_dropout avg_pool1d avg_pool2d avg_pool3d batch_norm
    bilinear binary_cross_entropy binary_cross_entropy_with_logits celu channel_shuffle conv1d conv2d conv3d
    conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity
    cross_entropy ctc_loss dropout dropout1d dropout2d dropout3d elu embedding embedding_bag
    feature_alpha_dropout fold fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d
    fractional_max_pool3d_with_indices gaussian_nll_loss gelu glu grid_sample group_norm grouped_mm
    gumbel_softmax hardshrink hardsigmoid hardswish hardtanh hinge_embedding_loss huber_loss instance_norm
    interpolate kl_div l1_loss layer_norm leaky_relu linear linear_cross_entropy local_response_norm log_softmax
    logsigmoid lp_pool1d lp_pool2d lp_pool3d margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool2d
    max_pool2d_with_indices max_pool3d max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d mish
    mse_loss multi_head_attention_forward multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss
    native_channel_shuffle nll_loss normalize one_hot pad pairwise_distance pdist pixel_shuffle pixel_unshuffle
    poisson_nll_loss prelu relu relu6 rms_norm rrelu scaled_dot_product_attention scaled_grouped_mm scaled_mm
    selu sigmoid silu smooth_l1_loss soft_margin_loss softmax softmin softplus softshrink softsign tanh
    tanhshrink threshold triplet_margin_loss triplet_margin_with_distance_loss unfold upsample upsample_bilinear
    upsample_nearest
""".split()

_LANGUAGE = """
    PropagateNan TRITON_MAX_TENSOR_NUMEL abs add advance arange argmax argmin associative_scan assume atomic_add
    atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor bfloat16 bitonic_merge
    block_type broadcast broadcast_to cast cat cdiv ceil clamp condition const constexpr cos cumprod cumsum
    debug_barrier device_assert div_rn dot dot_scaled dtype erf exp exp2 expand_dims fdiv flip
    float16 float32 float64 float8e4b15 float8e4b8 float8e4nv float8e5 float8e5b16 floor fma full gather
    histogram int1 int16 int32 int64 int8 interleave join load load_tensor_descriptor log log2 make_block_ptr
    make_tensor_descriptor max max_constancy max_contiguous maximum min minimum mul multiple_of num_programs
    pair_uniform_to_normal permute philox philox_impl pi32_t program_id rand rand4x randint randint4x randn
    randn4x range ravel reduce reduce_or reshape rsqrt sigmoid sin slice softmax sort split sqrt sqrt_rn squeeze
    static_assert static_print static_range store store_tensor_descriptor sub sum swizzle2d tensor
    tensor_descriptor to_tensor topk trans tuple uint16 uint32 uint64 uint8 uint_to_uniform_float umulhi
    unsqueeze view void where xor_sum zeros zeros_like
""".split()

_MATH_IN_KERNELS = """
    abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi
""".split()

_MATH = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist e erf erfc exp exp2
    expm1 fabs factorial floor fmod frexp fsum gamma gcd hypot inf isclose isfinite isinf isnan isqrt lcm ldexp
    lgamma log log10 log1p log2 modf nan nextafter perm pi pow prod radians remainder sin sinh sqrt tan tanh tau
    trunc ulp
""".split()

_LINALG = """
    cholesky cond cross det diagonal eigh inv lstsq lu matmul matrix_exp matrix_norm matrix_power multi_dot norm
    pinv qr slogdet solve solve_triangular svd vecdot vector_norm
""".split()

_FFT = """
    fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft rfft2 rfftfreq
    rfftn
""".split()

_SPECIAL = """
    digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammaln i0 i0e i1 i1e log1p log_ndtr log_softmax logit
    logsumexp multigammaln ndtr ndtri polygamma psi round sinc softmax xlog1py xlogy zeta
""".split()

_RETURN_TYPES = """
    aminmax cummax cummin frexp kthvalue linalg_cholesky_ex linalg_eigh linalg_inv_ex linalg_lstsq linalg_lu
    linalg_qr linalg_slogdet linalg_svd lu_unpack max median min mode nanmedian qr slogdet sort svd topk
    triangular_solve
""".split()
"""Named tuples that functions of torch return."""

_ASKED_OF_A_GPU = """
    current_device device device_count device_of get_device_capability get_device_name get_device_properties
    is_available is_bf16_supported synchronize OutOfMemoryError
""".split()

_LIBDEVICE = """
    abs acos acosh add_rn asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi cyl_bessel_i0 div_rn erf
    erfc erfcinv erfcx erfinv exp exp10 exp2 expm1 fast_cosf fast_dividef fast_exp10f fast_expf fast_log10f
    fast_log2f fast_logf fast_powf fast_sinf fast_tanf fast_tanhf fdim floor fma fma_rn fmod ffs hypot isfinited
    isinf isnan j0 j1 ldexp lgamma llrint log log10 log1p log2 logb max min mul_rn nearbyint nextafter normcdf
    normcdfinv popc pow rcp_rn remainder rint round rsqrt rsqrt_rn signbit sin sinh sinpi sqrt sqrt_rn sub_rn
    tan tanh tgamma trunc
""".split()

NAMESPACES: dict[str, frozenset[str]] = {
    path: frozenset(names)
    for path, names in {
        "__future__": ["annotations"],
        "typing": "Any Callable ClassVar Dict Final Iterable List Literal NamedTuple Optional Sequence Tuple Union".split(),
        "collections.abc": "Callable Iterable Iterator Mapping Sequence".split(),
        "collections": ["namedtuple"],
        "contextlib": ["contextmanager", "nullcontext"],
        "dataclasses": ["dataclass"],
        "enum": ["Enum", "IntEnum"],
        "functools": ["cache", "lru_cache", "partial", "reduce", "wraps"],
        "itertools": ["accumulate", "chain", "product", "repeat"],
        "math": _MATH,
        # Comparisons are written as such, so that sizes next to their numbers can be tried.
        "numbers": ["Integral", "Number", "Real"],
        "operator": "add and_ floordiv index invert lshift mod mul neg or_ pos pow rshift sub truediv xor".split(),
        "torch": [*_BOTH, *_TORCH, "zero_", "__version__"],
        "torch.amp": ["autocast", "custom_bwd", "custom_fwd"],
        "torch.autograd": ["Function"],
        "torch.autograd.function": ["once_differentiable"],
        "torch.compiler": ["disable", "is_compiling"],
        "torch.cuda": _ASKED_OF_A_GPU,
        "torch.cuda.amp": ["autocast", "custom_bwd", "custom_fwd"],
        "torch.fft": _FFT,
        "torch.linalg": _LINALG,
        "torch.nn": ["Module", "Parameter"],
        "torch.nn.functional": _FUNCTIONAL,
        "torch.return_types": _RETURN_TYPES,
        "torch.special": _SPECIAL,
        "torch.version": ["cuda", "hip"],
        "torch.xpu": ["get_device_properties", "is_available"],
        "triton": "Config __version__ autotune cdiv constexpr_function heuristics jit next_power_of_2".split(),
        "triton.language": _LANGUAGE,
        "triton.language.PropagateNan": ["ALL", "NONE"],
        "triton.language.extra": [],
        "triton.language.extra.cuda": ["gdc_launch_dependents", "gdc_wait"],
        "triton.language.extra.cuda.libdevice": _LIBDEVICE,
        "triton.language.extra.libdevice": _LIBDEVICE,
        "triton.language.math": _MATH_IN_KERNELS,
        "triton.tools": [],
        "triton.tools.tensor_descriptor": ["TensorDescriptor"],
        "triton.tools.tensor_descriptor.TensorDescriptor": ["from_tensor"],
        "triton.runtime": [],
        "triton.runtime.driver": [],
        "triton.runtime.driver.active": ["get_active_torch_device", "get_current_target"],
        "triton.runtime.driver.active.utils": ["get_device_properties"],
    }.items()
}
"""The names that may be used, by the path of the module (or of the object that has names like a module)."""

MEMBERS = frozenset([*_BOTH, *(f"{name}_" for name in _BOTH), *_METHODS, *_IN_PLACE])
"""Attributes of tensors that may be used. Not ``tolist``: a kernel does not need all the values in Python."""

_KERNEL_MEMBERS = "n_regs n_spills run warmup".split()
_GRADIENT_MEMBERS = "apply backward forward mark_non_differentiable saved_tensors save_for_backward".split()
_PLAIN_MEMBERS = """
    _init_handles bias bits default element_ty eps indices is_block is_floating is_int major max minor name
    primitive_bitwidth resolution smallest_normal tiny training value values weight with_traceback
""".split()

WITH_CONTEXT = frozenset(["backward", "forward", "setup_context"])
"""Methods of an autograd function that get a ``ctx``, on which they may store tensors for each other."""

OTHER_MEMBERS = frozenset([*_KERNEL_MEMBERS, *_GRADIENT_MEMBERS, *_PLAIN_MEMBERS])
"""Attributes of kernels, autograd functions, layers, types and GPU properties that may be used, although they are
refused for some other objects."""

INSIDE_TRITON = frozenset(
    """
    add_pre_run_hook all_kwargs arg_names base_fn bench_time best_config cache cache_clear cache_info cache_key
    cache_results check_disk_cache configs configs_timings configs_top_k constexprs create_binder device_caches
    do_bench do_not_specialize do_not_specialize_on_alignment early_config_prune fn get_capture_scope hash
    is_gluon keywords kwargs launch_metadata module nargs next_functions params parse post_hook pre_hook
    pre_run_hooks preload prune_configs raw_src repr reset_to_zero restore_value rewrite rewriter rewritten_fn
    src type used_global_vals user_defined_post_hook user_defined_pre_hook
    """.split()
)
"""Attributes of Triton's functions, configurations and partial functions that are refused: they could change a kernel
after the check, or keep state."""

INSIDE_TORCH = frozenset(
    """
    _addmm_activation _autocast_to_full_precision _autocast_to_reduced_precision _base _cdata
    _clear_non_serializable_cached_data _coalesced_ _conj _conj_physical _conv_forward _dimI _dimV
    _dtensor__new__ _fix_weakref _grad _grad_fn _has_symbolic_sizes_strides _indices _is_all_true _is_any_true
    _is_view _is_zerotensor _lazy_clone _make_subclass _make_wrapper_subclass _neg_view _nested_tensor_size
    _nested_tensor_storage_offsets _nested_tensor_strides _nnz _philox_normal_ _philox_uniform_
    _post_accumulate_grad_hooks _python_dispatch _reduce_ex_internal _rev_view_func_unsafe
    _sparse_mask_projection _to_dense _to_sparse _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr
    _typed_storage _use_count _values _view_func _view_func_unsafe apply_ as_subclass ccol_indices coalesce
    col_indices const_data_ptr crow_indices data_ptr dense_dim dequantize eig geqrf get_buffer get_parameter
    get_submodule grad grad_dtype grad_fn hash_tensor int_repr ipu is_coalesced is_distributed is_inference
    is_ipu is_leaf is_maia is_mkldnn is_mps is_mtia is_nested is_pinned is_quantized is_set_to is_shared
    is_vulkan is_xla is_xpu lstsq map2_ map_ module_load mtia new numpy orgqr ormqr output_nr pin_memory
    q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qscheme record_stream
    register_hook register_post_accumulate_grad_hook reinforce reset_parameters resize resize_ resize_as
    resize_as_ resize_as_sparse_ retain_grad retains_grad row_indices set_ share_memory_ smm solve sparse_dim
    sparse_mask sparse_resize_ sparse_resize_and_clear_ sspaddmm storage storage_offset storage_type symeig
    to_mkldnn to_padded_tensor to_sparse to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr
    tolist untyped_storage volatile xpu
    """.split()
)
"""What tensors and layers of torch 2.13 have besides what may be touched and ``INSIDE_MODULES``. It is listed here so that the
check gives the same answer where torch is not installed; where it is, names that a newer torch added are refused as well."""

INSIDE_MODULES = frozenset(
    """
    T_destination _apply _backward_hooks _backward_pre_hooks _buffers _call_impl _compiled_call_impl
    _forward_hooks _forward_hooks_always_called _forward_hooks_with_kwargs _forward_pre_hooks
    _forward_pre_hooks_with_kwargs _get_backward_hooks _get_backward_pre_hooks _get_name _is_full_backward_hook
    _load_from_state_dict _load_state_dict_post_hooks _load_state_dict_pre_hooks
    _maybe_warn_non_full_backward_hook _modules _named_members _non_persistent_buffers_set _parameters
    _register_load_state_dict_pre_hook _register_state_dict_hook _replicate_for_data_parallel
    _save_to_state_dict _slow_forward _state_dict_hooks _state_dict_pre_hooks _version _wrapped_call_impl
    add_module buffers call_super_init children compile dump_patches eval extra_repr get_extra_state
    load_state_dict modules named_buffers named_children named_modules named_parameters parameters
    register_backward_hook register_buffer register_forward_hook register_forward_pre_hook
    register_full_backward_hook register_full_backward_pre_hook register_load_state_dict_post_hook
    register_load_state_dict_pre_hook register_module register_parameter register_state_dict_post_hook
    register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule share_memory state_dict to_empty
    train zero_grad
    """.split()
)
"""What ``nn.Module`` has beside its parts. Refused for the target itself as well: it would change a module's state, or show
in which process a kernel runs, because a worker's module is no instance of the target's class."""

BUILTINS = frozenset(
    """
    ArithmeticError AssertionError AttributeError DeprecationWarning Exception FloatingPointError ImportError
    IndexError KeyError LookupError ModuleNotFoundError NotImplemented NotImplementedError OverflowError
    RuntimeError RuntimeWarning StopIteration TypeError UserWarning ValueError Warning ZeroDivisionError abs all
    any bin bool callable chr classmethod complex dict divmod enumerate filter float frozenset hasattr hex int
    isinstance issubclass iter len list map max min next object ord pow print property range repr reversed round
    set slice sorted staticmethod str sum super tuple zip
    """.split()
)
"""Builtins that a kernel module may use; the others run code, open files or inspect other objects."""

DUNDERS = frozenset(
    "__all__ __call__ __doc__ __getitem__ __init__ __iter__ __len__ __name__ __repr__ __str__".split()
)
"""Names with two underscores that may be bound or defined; only Python itself calls them."""

ENUMERATIONS = frozenset(["enum.Enum", "enum.IntEnum"])
"""Classes whose members outlive a call; they may only be derived from, with constants and methods."""

BASES = ENUMERATIONS | frozenset(
    [
        "object",
        "Exception",
        "RuntimeError",
        "ValueError",
        "torch.autograd.Function",
        "torch.nn.Module",
        "typing.NamedTuple",
    ]
)
"""What a class may derive from, besides the module's own classes."""

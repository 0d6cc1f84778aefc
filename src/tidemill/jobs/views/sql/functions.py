"""The functions that a view's statement may call, by kind, and those that it may not, with the reason.

Together they are all functions that Spark 4.1 has: a test compares them with what Spark lists, so a function
that is new in Spark is refused until somebody has decided about it here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SCALARS: Final = (
    # Numbers and bits
    words(
        """
    abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc
    degrees div e exp expm1 factorial floor greatest hex hypot least ln log log10 log1p log2 mod
    negative pi pmod positive pow power radians rint round sec sign signum sin sinh sqrt tan tanh
    try_add try_divide try_mod try_multiply try_subtract unhex width_bucket bit_count bit_get getbit
    shiftleft shiftright shiftrightunsigned bitmap_bit_position bitmap_bucket_number bitmap_count
    """
    )
    # Texts
    | words(
        """
    ascii base64 bit_length btrim char char_length character_length chr collate collation concat_ws
    contains decode elt encode endswith find_in_set format_number format_string ilike initcap instr
    is_valid_utf8 lcase left len length levenshtein like locate lower lpad ltrim luhn_check
    make_valid_utf8 mask octet_length overlay position printf quote regexp regexp_count
    regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr repeat
    replace right rlike rpad rtrim sentences soundex space split split_part startswith substr
    substring substring_index to_binary to_char to_number to_varchar translate trim try_to_binary
    try_to_number try_validate_utf8 ucase unbase64 upper validate_utf8 parse_url try_parse_url
    try_url_decode url_decode url_encode
    """
    )
    # Dates and times
    | words(
        """
    add_months convert_timezone date_add date_diff date_format date_from_unix_date date_part
    date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear extract
    from_unixtime from_utc_timestamp hour last_day make_date make_dt_interval make_interval
    make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval minute month
    monthname months_between next_day quarter second session_window time_diff time_trunc
    timestamp_micros timestamp_millis timestamp_seconds to_date to_time to_timestamp
    to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp trunc try_make_interval
    try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_to_date try_to_time
    try_to_timestamp unix_date unix_micros unix_millis unix_seconds unix_timestamp weekday
    weekofyear window window_time year
    """
    )
    # Arrays, maps and structs, with their lambdas
    | words(
        """
    aggregate array array_append array_compact array_contains array_distinct array_except
    array_insert array_intersect array_join array_max array_min array_position array_prepend
    array_remove array_repeat array_size array_sort array_union arrays_overlap arrays_zip
    cardinality concat element_at exists filter flatten forall get map map_concat map_contains_key
    map_entries map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with
    named_struct reduce reverse sequence size slice sort_array str_to_map struct transform
    transform_keys transform_values try_element_at zip_with
    """
    )
    # JSON, CSV and variants
    | words(
        """
    from_csv from_json get_json_object is_variant_null json_array_length json_object_keys parse_json
    schema_of_csv schema_of_json schema_of_variant to_csv to_json to_variant_object try_parse_json
    try_variant_get variant_get
    """
    )
    # Conditions, conversions, hashes, and others
    | words(
        """
    aes_decrypt assert_true bigint binary boolean cast coalesce crc32 date decimal double equal_null
    float hash if ifnull int isnan isnotnull isnull md5 nanvl nullif nullifzero nvl nvl2 raise_error
    sha sha1 sha2 smallint string time timestamp tinyint try_aes_decrypt typeof when xxhash64
    zeroifnull
    """
    )
)
AGGREGATES: Final = words(
    """
    any any_value approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor
    bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list collect_set corr
    count count_if count_min_sketch covar_pop covar_samp every first first_value grouping
    grouping_id kurtosis last last_value listagg max max_by mean median min min_by mode percentile
    percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept
    regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness some std stddev
    stddev_pop stddev_samp string_agg sum try_avg try_sum var_pop var_samp variance
    """
)
WINDOWS: Final = words("cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number")
GENERATORS: Final = words(
    "explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack"
)
ALLOWED: Final = SCALARS | AGGREGATES | WINDOWS | GENERATORS

# Spark lists operators as functions as well.
OPERATORS: Final = words(
    "! != % & * + - / < << <= <=> <> = == > >= >> >>> ^ | || ~ and between case in not or"
)

CHANCE: Final = "it does not always have the same answer, which a view needs"
SURROUNDINGS: Final = "it tells about the session, not about the rows"
JAVA: Final = "it runs Java code"
ORDER_OF_ROWS: Final = "its result depends on the order of the rows"
FILES: Final = "it may read files, or needs a module of Spark's that is not part of it"
XML: Final = "XML is not supported"
SHAPES: Final = "geographic types are not supported"
TABLES: Final = "it makes a table; FROM has to name tables"
NOT_ALLOWED: Final[Mapping[str, str]] = {
    **dict.fromkeys(words("rand randn random randstr shuffle uniform uuid aes_encrypt"), CHANCE),
    **dict.fromkeys(words("curdate current_date current_time current_timestamp localtimestamp now"), CHANCE),
    **dict.fromkeys(words("monotonically_increasing_id spark_partition_id"), CHANCE),
    **dict.fromkeys(words("current_catalog current_database current_schema current_timezone"), SURROUNDINGS),
    **dict.fromkeys(words("current_user session_user user version"), SURROUNDINGS),
    **dict.fromkeys(words("input_file_block_length input_file_block_start input_file_name"), SURROUNDINGS),
    **dict.fromkeys(words("java_method reflect try_reflect"), JAVA),
    **dict.fromkeys(words("approx_top_k approx_top_k_accumulate approx_top_k_combine"), ORDER_OF_ROWS),
    **dict.fromkeys(words("approx_top_k_estimate histogram_numeric"), ORDER_OF_ROWS),
    **dict.fromkeys(
        words(
            """
    hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg kll_merge_agg_bigint
    kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double
    kll_sketch_agg_float kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float
    kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double kll_sketch_get_quantile_float
    kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float
    kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float
    kll_sketch_to_string_bigint kll_sketch_to_string_double kll_sketch_to_string_float
    theta_difference theta_intersection theta_intersection_agg theta_sketch_agg
    theta_sketch_estimate theta_union theta_union_agg
    """
        ),
        ORDER_OF_ROWS,
    ),
    **dict.fromkeys(words("from_avro from_protobuf schema_of_avro to_avro to_protobuf"), FILES),
    **dict.fromkeys(words("from_xml schema_of_xml to_xml xpath xpath_boolean xpath_double xpath_float"), XML),
    **dict.fromkeys(words("xpath_int xpath_long xpath_number xpath_short xpath_string"), XML),
    **dict.fromkeys(words("st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid"), SHAPES),
    **dict.fromkeys(words("collations python_worker_logs range sql_keywords"), TABLES),
    **dict.fromkeys(words("variant_explode variant_explode_outer"), TABLES),
}


def refusal_of(name: str) -> str | None:
    """Why a statement may not call the function of this name, in any case; None if it may."""
    if name.lower() in ALLOWED:
        return None
    reason = NOT_ALLOWED.get(name.lower())
    return f"{name:.80}() is not allowed: {reason}" if reason else f"{name:.80}() is not a known function"

//! Macros that generate nothing, with the names of those of utoipa and schemars.
//!
//! The OpenAPI document and the schemas of frames are files below `docs/schema/`, which the program serves as they are. Only tests
//! generate them, with the feature `schemas` of `laneway-wire` and `laneway-api`, and compare them with the files. Every other
//! build uses these macros, so that it compiles neither the generators nor what they generate.

use proc_macro::TokenStream;

/// Keeps the attributes of `utoipa::ToSchema` valid.
#[proc_macro_derive(ToSchema, attributes(schema))]
pub fn to_schema(_: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// Keeps the attributes of `schemars::JsonSchema` valid.
#[proc_macro_derive(JsonSchema, attributes(schemars))]
pub fn json_schema(_: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// Leaves a handler that `utoipa::path` describes as it is.
#[proc_macro_attribute]
pub fn path(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}

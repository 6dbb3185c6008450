//! The codes of the facts, and what each bad field is answered with.

use laneway_core::Rejection;
use laneway_core::RejectionCode;
use serde_json::{Value, json};

use super::decode::{Fields, Paging};
use super::error::{Code, Problem};

fn fields(body: &Value) -> Fields {
    Fields::of_body(body.to_string().as_bytes()).unwrap()
}

fn number_of(problem: &Problem) -> i32 {
    problem.code().row().0
}

#[test]
fn every_code_has_the_status_of_the_document() {
    let known = [
        (-1001, 404),
        (-1004, 422),
        (-1005, 409),
        (-1007, 422),
        (-1401, 404),
        (-1402, 422),
        (-1403, 422),
        (-1404, 503),
        (-1501, 401),
        (-1502, 401),
        (-1503, 401),
        (-1504, 403),
        (-1505, 429),
        (-1600, 404),
        (-1601, 400),
        (-1602, 400),
        (-1603, 400),
        (-1604, 400),
        (-1605, 400),
        (-1606, 400),
        (-1607, 400),
        (-1701, 500),
        (-1702, 503),
        (-1704, 507),
        (-1801, 501),
    ];
    let ours = Code::ALL.map(|code| (code.row().0, code.row().1.as_u16()));
    assert_eq!(ours, known);
}

#[test]
fn every_code_is_in_the_documentation() {
    let page = include_str!("../../../../docs/compat/browser_manager.md");
    for code in Code::ALL {
        let (number, status, _) = code.row();
        // The first cell of a row of the table has the codes.
        let has_code = |line: &&str| {
            let first = line.strip_prefix("| ").and_then(|line| line.split(" |").next());
            first.is_some_and(|codes| codes.split(", ").any(|code| code == number.to_string()))
        };
        let row = page.lines().find(has_code);
        assert!(row.is_some_and(|row| row.contains(status.as_str())), "{number}");
    }
}

#[test]
fn a_missing_field_is_1601() {
    for body in [json!({}), json!({"id": null}), json!({"id": ""}), json!({"id": "  "})] {
        let problem = fields(&body).text("id").unwrap_err();
        assert_eq!(number_of(&problem), -1601, "{body}");
        assert!(problem.message().contains("id"), "{problem:?}");
    }
    assert_eq!(number_of(&fields(&json!({})).texts("ids", 3).unwrap_err()), -1601);
}

#[test]
fn a_field_of_another_type_is_1602() {
    for value in [json!(7), json!(1.5), json!(true), json!([]), json!({})] {
        assert_eq!(number_of(&fields(&json!({"id": value})).text("id").unwrap_err()), -1602, "{value}");
    }
    for value in [json!("7"), json!(1.5), json!([])] {
        let problem = fields(&json!({"n": value})).opt_number("n", 1, 9).unwrap_err();
        assert_eq!(number_of(&problem), -1602, "{value}");
    }
    assert_eq!(number_of(&fields(&json!({"f": "yes"})).flag("f").unwrap_err()), -1602);
    assert_eq!(number_of(&fields(&json!({"ids": "a"})).texts("ids", 3).unwrap_err()), -1602);
    assert_eq!(number_of(&fields(&json!({"ids": [7]})).texts("ids", 3).unwrap_err()), -1602);
    assert_eq!(number_of(&Fields::of_body(b"[1]").unwrap_err()), -1602);
}

#[test]
fn a_number_out_of_its_range_is_1603() {
    for value in [json!(0), json!(-1), json!(10), json!(u64::MAX)] {
        let problem = fields(&json!({"n": value})).opt_number("n", 1, 9).unwrap_err();
        assert_eq!(number_of(&problem), -1603, "{value}");
    }
    assert_eq!(number_of(&fields(&json!({"ids": []})).texts("ids", 3).unwrap_err()), -1603);
    assert_eq!(number_of(&fields(&json!({"ids": ["a", "b", "c", "d"]})).texts("ids", 3).unwrap_err()), -1603);
}

#[test]
fn an_unknown_name_is_1604() {
    let values = [("active", 1), ("trashed", 2)];
    let problem = fields(&json!({"status": "gone"})).opt_one_of("status", &values).unwrap_err();
    assert_eq!(number_of(&problem), -1604);
    assert!(problem.message().contains("active, trashed"), "{problem:?}");
    assert_eq!(fields(&json!({"status": "Active"})).opt_one_of("status", &values), Ok(Some(1)));
}

#[test]
fn a_body_that_is_no_json_is_1605() {
    for body in ["{", "{\"id\":}", "id=1", "\u{0}", "{} {}", "nul"] {
        assert_eq!(number_of(&Fields::of_body(body.as_bytes()).unwrap_err()), -1605, "{body}");
    }
    assert_eq!(number_of(&Fields::of_body(b"\xff\xfe").unwrap_err()), -1605);
    assert!(Fields::of_body(b" \n").is_ok(), "an empty body has no fields");
}

#[test]
fn a_text_that_is_too_long_is_1606() {
    let problem = fields(&json!({"id": "x".repeat(129)})).text("id").unwrap_err();
    assert_eq!(number_of(&problem), -1606);
}

#[test]
fn paging_beyond_its_limits_is_1607() {
    for query in ["pageNum=0", "pageNum=-1", "pageSize=0", "pageSize=101", "pageNum=999999&pageSize=100"] {
        assert_eq!(number_of(&Fields::of_query(Some(query)).paging().unwrap_err()), -1607, "{query}");
    }
    for query in ["pageNum=x", "pageSize=1.5", "pageNum="] {
        let code = Fields::of_query(Some(query)).paging().map_err(|problem| number_of(&problem));
        assert!(matches!(code, Err(-1602) | Ok(_)), "{query}: {code:?}");
    }
    let whole = Fields::of_query(None).paging().unwrap();
    assert_eq!(whole, Paging { page_num: 1, page_size: 20 });
    let last = Fields::of_query(Some("pageNum=100&pageSize=100")).paging().unwrap();
    assert_eq!((last.skipped(), last.len_max()), (9_900, 100));
}

#[test]
fn queries_are_decoded() {
    let mut fields = Fields::of_query(Some("search=a%20b+c&level=info&job_id=123&tail=7&bad=%zz&last"));
    assert_eq!(fields.opt_query_text("search"), Ok(Some("a b c".to_owned())));
    assert_eq!(fields.opt_query_text("job_id"), Ok(Some("123".to_owned())));
    assert_eq!(fields.opt_number("tail", 0, 9), Ok(Some(7)));
    assert_eq!(fields.opt_query_text("bad"), Ok(Some("%zz".to_owned())));
    assert_eq!(fields.opt_query_text("last"), Ok(None));
}

#[test]
fn rejections_of_the_engine_have_their_codes() {
    for (code, number) in [
        (RejectionCode::QueueFull, -1403),
        (RejectionCode::Draining, -1404),
        (RejectionCode::StorageLow, -1704),
        (RejectionCode::UnknownKind, -1801),
        (RejectionCode::Invalid, -1603),
    ] {
        assert_eq!(number_of(&Problem::rejected(&Rejection::new(code, "why"))), number, "{code:?}");
    }
}

use super::*;

#[test]
fn the_first_entry_that_fits_decides() {
    let mapping = Mapping::parse(
        r#"
        [[services]]
        offering = "p-mysql"
        plan = "small"
        resource_id = "mysql"
        plan_id = "s"
        [[services]]
        offering = "p-mysql"
        resource_id = "sql"
        [[processes]]
        type = "worker"
        plan_id = "background"
        [tasks]
        resource_id = "jobs"
        "#,
    )
    .unwrap();
    for (names, resource_id, plan_id) in [
        (mapping.service("p-mysql", "small"), "mysql", "s"),
        (mapping.service("p-mysql", "large"), "sql", "large"),
        (mapping.service("redis", "small"), "redis", "small"),
        (
            mapping.process(Some("worker")),
            "linux-container",
            "background",
        ),
        (mapping.process(Some("web")), "linux-container", "basic"),
        (mapping.process(None), "linux-container", "basic"),
        (mapping.task(), "jobs", "basic"),
    ] {
        assert_eq!(names, (resource_id.to_owned(), plan_id.to_owned()));
    }
    let all = |record| mapping.resources(record).into_iter().collect::<Vec<_>>();
    assert_eq!(all(Record::Services), ["mysql", "sql"]);
    assert_eq!(all(Record::Apps), ["jobs", "linux-container", "linux-task"]);
}

#[test]
fn all_wrong_values_are_named_at_once() {
    let long = "x".repeat(1_025);
    let text = format!(
        r#"
        tasks = {{ resource_id = "", type = "x" }}
        [[services]]
        plan = "p"
        [[services]]
        offering = "a"
        [[services]]
        offering = "a"
        plan = "small"
        resource_id = "{long}"
        plan_id = "a\u0007"
        [[processes]]
        offering = "b"
        [[processes]]
        type = "web"
        [[processes]]
        type = "web"
        "#
    );
    let words = Mapping::parse(&text).unwrap_err();
    let mistakes: Vec<&str> = words.split("; ").collect();
    for part in [
        "tasks.resource_id is empty",
        "tasks.type is not a known key",
        "services[1] names no offering",
        "services[3] is never reached: services[2] fits",
        "services[3].resource_id has more than 1024 bytes",
        "services[3].plan_id holds a control character",
        "processes[1].offering is not a known key",
        "processes[3] is never reached: processes[2] fits",
    ] {
        let named = mistakes.iter().filter(|one| one.contains(part)).count();
        assert_eq!(named, 1, "{part}: {mistakes:#?}");
    }
    assert_eq!(mistakes.len(), 8, "{mistakes:#?}");
}

#[test]
fn a_mistake_of_form_is_named_with_its_line() {
    for (text, part) in [
        ("services = 1", "invalid type"),
        ("other = 1", "unknown field `other`"),
        ("[[processes]]\ncolour = \"red\"", "line 2"),
        ("[[processes]]\ntype = 5", "line 2"),
        ("[[services", "line 1"),
    ] {
        let words = Mapping::parse(text).unwrap_err();
        assert!(words.contains(part), "{words}");
    }
}

//! Receivers elsewhere, without sockets: time is made up.

use super::*;

const COST: u32 = 10_000;

fn line(block: u16) -> Line {
    Line {
        target: SocketAddr::from(([10, 0, 0, 2], 4791)),
        block,
    }
}

fn ends(block: u16) -> (IpAddr, Qpn) {
    let dest = Qpn::new(u32::from(block) << 12 | 5);
    (IpAddr::from([10, 0, 0, 1]), dest)
}

/// Sends until something does not fit, and says how much went.
fn fill(told: &mut Told, line: Line) -> u32 {
    let mut sent = 0;
    while told.fits(line, ends(line.block), COST) {
        sent += COST;
        assert!(sent <= MAX_WINDOW + COST, "without end");
    }
    sent
}

fn last_question(told: &mut Told) -> Question {
    told.questions().last().expect("a question")
}

/// The answer of a receiver whose socket may hold `room`.
fn answer(question: &Question, room: u32) -> Note {
    Note {
        token: question.token,
        mark: question.mark,
        port: question.target.port(),
        block: srdma_core::hca::ports::block_of(question.dest),
        value: room,
    }
}

#[test]
fn no_more_is_under_way_than_a_window() {
    let mut told = Told::new();
    let sent = fill(&mut told, line(7));
    assert_eq!(sent, WINDOW / COST * COST);
    let question = last_question(&mut told);
    assert_eq!((question.mark, question.dest), (sent.into(), ends(7).1));
    let from = question.target.ip();
    told.hear(from, &answer(&question, 4 * MAX_WINDOW));
    let now = Instant::now();
    assert!(!told.waits(line(7), COST, now), "there is room again");
    assert_eq!(fill(&mut told, line(7)), MAX_WINDOW / COST * COST);
    let question = last_question(&mut told);
    // Its socket is small, or shared with many.
    told.hear(from, &answer(&question, 0));
    assert_eq!(fill(&mut told, line(7)), MIN_WINDOW / COST * COST);
}

#[test]
fn little_is_never_asked_for_and_much_is_asked_for_before_it_waits() {
    let mut told = Told::new();
    assert!(told.fits(line(7), ends(7), WINDOW / 2 - 1));
    assert_eq!(told.questions().count(), 0);
    assert!(told.fits(line(7), ends(7), 1));
    assert_eq!(told.questions().count(), 1);
    // What is larger than a window goes alone.
    assert!(told.fits(line(8), ends(8), 3 * WINDOW));
    assert!(!told.fits(line(8), ends(8), 1));
}

#[test]
fn a_stranger_is_waited_for_once() {
    let mut told = Told::new();
    fill(&mut told, line(7));
    let start = Instant::now();
    let mut asked = told.questions().count();
    let mut waited = 0u32;
    while told.waits(line(7), COST, start + Duration::from_millis(waited.into())) {
        asked += told.questions().count();
        waited += 1;
        assert!(waited < 200);
    }
    // The wait began a little before the start.
    assert!((50..=100).contains(&waited), "{waited} ms");
    assert!((3..12).contains(&asked), "{asked} questions");
    // Everything goes from now on, and hardly a question with it.
    for _ in 0..1000 {
        assert!(told.fits(line(7), ends(7), COST));
    }
    assert!(told.questions().count() <= 1);
}

#[test]
fn who_answers_late_after_all_is_waited_for_again() {
    let mut told = Told::new();
    fill(&mut told, line(7));
    let question = last_question(&mut told);
    let start = Instant::now();
    told.waits(line(7), COST, start);
    assert!(!told.waits(line(7), COST, start + STRANGER));
    for _ in 0..100 {
        assert!(told.fits(line(7), ends(7), COST));
    }
    told.hear(question.target.ip(), &answer(&question, 212_992));
    told.questions().for_each(drop);
    assert!(
        told.waits(line(7), COST, Instant::now()),
        "more is under way than fits"
    );
    let question = last_question(&mut told);
    told.hear(question.target.ip(), &answer(&question, 212_992));
    assert!(!told.waits(line(7), COST, Instant::now()));
    // Who is known is waited for longer, as long as there is no news.
    fill(&mut told, line(7));
    let start = Instant::now();
    assert!(told.waits(line(7), COST, start));
    assert!(told.waits(line(7), COST, start + STRANGER));
    assert!(!told.waits(line(7), COST, start + PATIENCE + STRANGER));
}

#[test]
fn only_answers_to_questions_count() {
    let mut told = Told::new();
    fill(&mut told, line(7));
    let question = last_question(&mut told);
    let from = question.target.ip();
    let good = answer(&question, 212_992);
    let bad = [
        Note {
            token: !good.token,
            ..good
        },
        Note {
            mark: good.mark + 1,
            ..good
        },
        Note {
            mark: u64::MAX,
            ..good
        },
        Note { mark: 0, ..good },
        Note { port: 1, ..good },
        Note { block: 8, ..good },
    ];
    for reply in &bad {
        told.hear(from, reply);
    }
    told.hear(IpAddr::from([10, 0, 0, 3]), &good);
    assert!(told.waits(line(7), COST, Instant::now()));
    told.hear(from, &good);
    assert!(!told.waits(line(7), COST, Instant::now()));
    // Old ones change nothing.
    fill(&mut told, line(7));
    told.hear(from, &good);
    assert!(told.waits(line(7), COST, Instant::now()));
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut told = Told::new();
    for block in 0..u16::try_from(2 * LINES).unwrap() {
        assert!(told.fits(line(block), ends(block), 10 * WINDOW));
        assert!(told.lines.len() <= LINES);
        assert!(told.questions.len() <= QUESTIONS);
    }
    // Those beyond are not waited for.
    let beyond = u16::try_from(2 * LINES - 1).unwrap();
    assert!(told.fits(line(beyond), ends(beyond), 10 * WINDOW));
}

/*
 * PaxosLease with the kernel fence: three voters, one lease, and with OBSERVER a
 * fourth node that campaigns for the lease without a vote. README.md lists the
 * scope and explains why each shortcut is sound.
 *
 * No step is forced except the passage of time: a process may freeze between any
 * two steps for any time, and a message may be received late, in any order,
 * repeatedly, or never. Only the kernel's timers keep time. Each switch in verify
 * removes one rule.
 */

#ifndef BALLOTS
#define BALLOTS 3 /* maximum number of ballots, begun in any order of their numbers; at most 4 */
#endif
#ifndef LEASE
#define LEASE 2 /* ticks for which acceptors keep an accepted value, or abstain; at most 6 */
#endif
#ifndef ARMED
#define ARMED 0 /* ticks for which an opening is armed; 0: the fence opens with the grant */
#endif
#ifdef LONG_TIMER
#define TERM (LEASE + 1)
#else
#define TERM LEASE /* ticks for which a proposer holds the lease, from before it sent Propose */
#endif

#define VOTERS 3
#ifdef OBSERVER
#define NODES  4
#else
#define NODES  VOTERS
#endif
#define votes(me) (me < VOTERS)
#define NOBODY NODES
#define NONE   0

/* Sent messages, which may arrive from then on: Prepare(b) once b has an owner,
 * Propose(b), Release(b). Answers are part of the step that sends them. */
typedef Ballot {
	unsigned owner : 3 = NOBODY;
	unsigned life  : 3; /* identifies the owner's incarnation: its first ballot */
	bool proposed;
	bool released
}
Ballot ballot[BALLOTS + 1];
byte bidders; /* voters are numbered in the order of their first ballots */

typedef Node {
	/* the acceptor */
	unsigned promised : 3; /* lesser ballots are refused */
	unsigned accepted : 3; /* the accepted ballot, NONE once its timer has ended */
	unsigned expiry   : 3; /* that timer */
	unsigned abstains : 3; /* timer since its start */
	/* the proposer */
	unsigned current  : 3; /* its ballot, or NONE */
	unsigned life     : 3; /* its first ballot of this incarnation, or NONE */
	unsigned last     : 3; /* its last one, or NONE */
	bool prepared;         /* an open majority has promised the ballot */
	unsigned votes    : 3; /* voters that answered Prepare, or this round's Propose */
	unsigned round    : 3; /* timer of the present round */
	unsigned until    : 3; /* remaining time of its held lease */
	/* the kernel */
	unsigned fence    : 3; /* the node answers while this timer runs */
	unsigned opening  : 3; /* timeout of an opening on its way to the kernel */
	unsigned armed    : 3  /* the kernel refuses openings unless this timer runs */
}
Node node[NODES];

byte p, n; /* scratch, 0 between steps */

#ifdef QUORUM_OF_ONE
#define majority(set) (set != 0)
#else
#define majority(set) (set == 3 || set >= 5)
#endif
#ifdef OBSERVER_VOTES
#define enough(me) (majority(node[me].votes) || (!votes(me) && node[me].votes != 0))
#else
#define enough(me) majority(node[me].votes)
#endif

#ifdef ANY_LIFE
#define same_owner(b, c) (ballot[b].owner == ballot[c].owner)
#else
#define same_owner(b, c) (ballot[b].life == ballot[c].life)
#endif
/* Acceptor a has no value, or one of b's own owner. */
#define open(a, b) (node[a].accepted == NONE || same_owner(node[a].accepted, b))

/* Steps that only restrict others (another promise, a longer lock) cannot break
 * safety. EVERY_STEP includes them nevertheless. */
#ifdef EVERY_STEP
#define every_step true
#else
#define every_step false
#endif

/* A proposer begins a ballot above its earlier ones of this incarnation, at any
 * time, even as the holder. */
#define can_bid(me, b) (ballot[b].owner == NOBODY && (me <= bidders || !votes(me)) && b > node[me].last)
inline bid(me, b) {
	bidders = (me == bidders -> me + 1 : bidders);
	node[me].life = (node[me].life == NONE -> b : node[me].life);
	node[me].last = b;
	node[me].current = b;
	node[me].prepared = false;
	node[me].votes = 0;
	node[me].round = 0;
	ballot[b].owner = me;
	ballot[b].life = node[me].life
}

#define promise_counts(a, b) (node[ballot[b].owner].current == b && \
	!node[ballot[b].owner].prepared && !(node[ballot[b].owner].votes & (1 << a)))
#define can_promise(a, b) (votes(a) && ballot[b].owner != NOBODY && node[a].abstains == 0 && b >= node[a].promised && open(a, b) && \
	(promise_counts(a, b) || every_step))
inline promise(a, b) {
	p = ballot[b].owner;
	node[a].promised = b;
	if
	:: promise_counts(a, b) ->
		node[p].votes = node[p].votes | (1 << a);
		if
		:: enough(p) -> node[p].prepared = true; node[p].votes = 0
		:: else
		fi
	:: else
	fi
}

/* Propose. A renewal is a new round of the same ballot; only its answers count. */
#define can_propose(me) (node[me].prepared)
inline propose(me) {
	ballot[node[me].current].proposed = true;
	node[me].round = TERM;
#ifndef ANY_ROUND
	node[me].votes = 0
#endif
}

#ifdef NO_LOCK
#define locked(a, b) false
#else
#define locked(a, b) (!open(a, b))
#endif
#define accept_counts(a, b) (node[ballot[b].owner].current == b && node[ballot[b].owner].round > 0 && \
	!(node[ballot[b].owner].votes & (1 << a)))
#define can_accept(a, b) (votes(a) && ballot[b].proposed && node[a].abstains == 0 && b >= node[a].promised && !locked(a, b) && \
	(accept_counts(a, b) || (node[a].accepted != NONE && node[a].accepted != b) || every_step))
inline accept(a, b) {
	p = ballot[b].owner;
	node[a].promised = b;
	node[a].accepted = b;
	node[a].expiry = LEASE;
	if
	:: accept_counts(a, b) ->
		node[p].votes = node[p].votes | (1 << a);
		if
		:: enough(p) -> grant(p)
		:: else
		fi
	:: else
	fi
}

inline grant(me) {
#ifdef LATE_TIMER
	node[me].until = TERM;
#else
	node[me].until = node[me].round;
#endif
	node[me].round = 0;
#ifndef ANY_ROUND
	node[me].votes = 0;
#endif
#if ARMED == 0
	node[me].opening = node[me].until;
	open_fence(me)
#endif
}

/* The holder arms an opening and reads the clock, ... */
#define can_arm(me) (ARMED > 0 && node[me].until >= ARMED && node[me].opening == 0)
inline arm(me) {
	node[me].armed = ARMED;
	node[me].opening = node[me].until - (ARMED - 1)
}

/* ... and the kernel opens unless the opening comes too late. */
#define can_open(me) (node[me].opening > 0)
inline open_fence(me) {
	node[me].fence = node[me].opening;
	node[me].opening = 0;
	node[me].armed = 0;
#ifdef OBSERVER
	assert((node[0].fence > 0) + (node[1].fence > 0) + (node[2].fence > 0) + (node[3].fence > 0) <= 1)
#else
	assert((node[0].fence > 0) + (node[1].fence > 0) + (node[2].fence > 0) <= 1)
#endif
}

/* The fence closes before the lease is released. */
#define can_release(me) (node[me].prepared)
inline release(me) {
#ifndef EARLY_RELEASE
	node[me].fence = 0;
#endif
	node[me].opening = 0;
	node[me].armed = 0;
	ballot[node[me].current].released = true;
	node[me].current = NONE;
	give_up(me)
}

/* The acceptor forgets a released value of that ballot or a lesser one of its
 * owner, and refuses replays of these. */
#define released_by(a, b) (node[a].accepted != NONE && node[a].accepted <= b && same_owner(node[a].accepted, b))
#define can_forget(a, b) (votes(a) && ballot[b].released && \
	(released_by(a, b) || (every_step && node[a].promised <= b)))
inline forget(a, b) {
	if
	:: released_by(a, b) -> node[a].accepted = NONE; node[a].expiry = 0
	:: else
	fi;
#ifndef NO_BUMP
	node[a].promised = (node[a].promised <= b -> b + 1 : node[a].promised)
#endif
}

inline give_up(me) {
	node[me].prepared = false;
	node[me].votes = 0;
	node[me].round = 0;
	node[me].until = 0
}

/* The process dies and restarts without memory; the kernel continues. */
inline restart(me) {
	node[me].promised = 0;
	node[me].accepted = NONE;
	node[me].expiry = 0;
#ifdef SHORT_ABSTAIN
	node[me].abstains = LEASE - 1;
#elif !defined(NO_ABSTAIN)
	node[me].abstains = LEASE;
#endif
	node[me].current = NONE;
	node[me].life = NONE;
	node[me].last = NONE;
	give_up(me)
}

#define RECEIVE(b) \
	:: d_step { can_bid(_pid, b) -> bid(_pid, b) } \
	:: d_step { can_promise(_pid, b) -> promise(_pid, b); p = 0 } \
	:: d_step { can_accept(_pid, b) -> accept(_pid, b); p = 0 } \
	:: d_step { can_forget(_pid, b) -> forget(_pid, b) }

active [NODES] proctype Speaker() {
	do
	RECEIVE(1)
	RECEIVE(2)
#if BALLOTS > 2
	RECEIVE(3)
#endif
#if BALLOTS > 3
	RECEIVE(4)
#endif
	:: d_step { can_propose(_pid) -> propose(_pid) }
	:: d_step { can_arm(_pid) -> arm(_pid) }
	:: d_step { can_open(_pid) -> open_fence(_pid) }
	:: d_step { can_release(_pid) -> release(_pid) }
	:: d_step { restart(_pid) }
#ifdef NO_FENCE /* the process itself must stop answering when the lease ends */
	:: d_step { node[_pid].until == 0 -> node[_pid].fence = 0 }
#endif
	od
}

#define run_down(timer) timer = (timer > 0 -> timer - 1 : 0)

active proctype Time() {
	do
	:: d_step {
		for (n : 0 .. NODES - 1) {
			run_down(node[n].expiry);
			node[n].accepted = (node[n].expiry > 0 -> node[n].accepted : NONE);
			run_down(node[n].abstains);
			run_down(node[n].round);
			node[n].votes = (node[n].round > 0 || !node[n].prepared -> node[n].votes : 0);
			run_down(node[n].until);
#ifndef NO_FENCE
			run_down(node[n].fence);
#endif
			run_down(node[n].armed);
#ifndef NO_ARMING
			node[n].opening = (node[n].armed > 0 -> node[n].opening : 0)
#endif
		}
		n = 0
	}
	od
}

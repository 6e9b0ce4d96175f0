/*
 * The committed electorate changes while a lease is held: at most three voters, two candidates,
 * electorates 1 to 3. README.md lists the scope and explains why each shortcut is sound.
 *
 * No step is forced except the passage of time: any step may come at any time or never, so
 * processes freeze, and messages are late or lost. Each switch in verify removes one rule.
 */

#define VOTERS     3
#define CANDIDATES 2
#define NOBODY     CANDIDATES /* no candidate has the voter's grant */
#define RECORDS    3

/* A committed electorate: its members as bits; the length of its leases in ticks, at most 3; and
 * the members of the previous one that have accepted it, as bits. */
typedef Record {
	unsigned members  : 3;
	unsigned duration : 2;
	unsigned accepted : 3
}
Record record[RECORDS + 1];

typedef Voter {
	/* on its disk */
	unsigned number  : 2; /* of its committed electorate, 0: none yet */
	unsigned longest : 2; /* longest lease that it may have voted for */
	bool accepted;        /* the next electorate */
	/* in memory */
	unsigned grant   : 2; /* the holder of its grant, until expiry */
	unsigned expiry  : 2;
	unsigned abstain : 2; /* it abstains */
	unsigned settled : 2  /* it accepts nothing */
}
Voter voter[VOTERS];

typedef Candidate {
	unsigned number : 2; /* of its electorate */
	unsigned round  : 2; /* remaining time of its proposal, 0: none */
	unsigned votes  : 3;
	unsigned until  : 2  /* remaining time of the lease, in the kernel */
}
Candidate candidate[CANDIDATES];

byte i, j; /* scratch, 0 between steps */

#define most(a, b) (a > b -> a : b)
#define count(set) ((set & 1) + ((set >> 1) & 1) + ((set >> 2) & 1))
#define majority(set, of) (2 * count(((set) & (of))) > count((of)))

/* Voters are identities: a reinstalled one is a different voter. With BY_NAME, the third is the
 * second reinstalled, under the same name. */
#ifdef BY_NAME
#define bit(v) (1 << (v == 2 -> 1 : v))
#else
#define bit(v) (1 << v)
#endif
#define votes(v) (voter[v].number > 0 && (record[voter[v].number].members & bit(v)))

/* A candidate requests the lease or its renewal. */
#define can_ask(c) (candidate[c].number > 0 && candidate[c].round < record[candidate[c].number].duration)
inline ask(c) {
	candidate[c].round = record[candidate[c].number].duration;
	candidate[c].votes = 0
}

#ifdef ANY_RECORD
#define same_record(v, c) true
#else
#define same_record(v, c) (voter[v].number == candidate[c].number)
#endif
#define can_grant(v, c) (candidate[c].round > 0 && votes(v) && same_record(v, c) && voter[v].abstain == 0 && \
	(voter[v].grant == NOBODY || voter[v].grant == c) && !(candidate[c].votes & bit(v)))
inline vote_for(v, c) {
	voter[v].grant = c;
	voter[v].expiry = most(voter[v].expiry, record[voter[v].number].duration);
	candidate[c].votes = candidate[c].votes | bit(v);
	if
	:: majority(candidate[c].votes, record[candidate[c].number].members) ->
		candidate[c].until = most(candidate[c].until, candidate[c].round);
		candidate[c].round = 0;
		candidate[c].votes = 0;
		assert(candidate[0].until == 0 || candidate[1].until == 0)
	:: else
	fi
}

#ifdef NO_SETTLING
#define settled(v) true
#else
#define settled(v) (voter[v].settled == 0)
#endif
#define can_accept(v) (votes(v) && voter[v].number < RECORDS && settled(v) && !voter[v].accepted)
inline accept(v) {
	voter[v].accepted = true;
	record[voter[v].number + 1].accepted = record[voter[v].number + 1].accepted | bit(v)
}

/* Voters and candidates adopt a chosen electorate. */
#define chosen(r) (r == 1 || majority(record[r].accepted, record[r - 1].members))
#define can_learn(v, r) (voter[v].number < r && chosen(r))
inline learn(v, r) {
	voter[v].longest = most(voter[v].longest, record[r].duration);
	voter[v].abstain = (voter[v].number == 0 -> voter[v].longest : voter[v].abstain);
	voter[v].settled = voter[v].longest;
	voter[v].number = r;
	voter[v].accepted = false;
#ifdef FORGET_GRANTS
	voter[v].grant = NOBODY;
	voter[v].expiry = 0
#endif
}
#define can_follow(c, r) (candidate[c].number < r && chosen(r))
inline follow(c, r) {
	candidate[c].number = r;
#ifndef KEEP_VOTES
	candidate[c].round = 0;
	candidate[c].votes = 0
#endif
}

/* The longer leases under earlier electorates are over. */
#define can_shorten(v) (votes(v) && voter[v].settled == 0 && voter[v].longest != record[voter[v].number].duration)
inline shorten(v) { voter[v].longest = record[voter[v].number].duration }

/* A process dies and restarts. Its disk remains. */
inline restart_voter(v) {
	voter[v].grant = NOBODY;
	voter[v].expiry = 0;
#ifdef ABSTAIN_PRESENT
	voter[v].abstain = record[voter[v].number].duration;
#elif !defined(NO_ABSTAINING)
	voter[v].abstain = voter[v].longest;
#endif
	voter[v].settled = most(voter[v].settled, voter[v].abstain);
#ifdef LOSE_DISK
	voter[v].number = 0;
	voter[v].accepted = false
#endif
}

#define v (_pid - 1)
proctype Vote() {
	do
	:: d_step { can_grant(v, 0) -> vote_for(v, 0) }
	:: d_step { can_grant(v, 1) -> vote_for(v, 1) }
	:: d_step { can_accept(v) -> accept(v) }
	:: d_step { can_learn(v, 1) -> learn(v, 1) }
	:: d_step { can_learn(v, 2) -> learn(v, 2) }
	:: d_step { can_learn(v, 3) -> learn(v, 3) }
	:: d_step { can_shorten(v) -> shorten(v) }
	:: d_step { voter[v].number > 0 -> restart_voter(v) }
	od
}

#define c (_pid - 1 - VOTERS)
proctype Campaign() {
	do
	:: d_step { can_ask(c) -> ask(c) }
	:: d_step { can_follow(c, 1) -> follow(c, 1) }
	:: d_step { can_follow(c, 2) -> follow(c, 2) }
	:: d_step { can_follow(c, 3) -> follow(c, 3) }
	od
}

#define run_down(timer) timer = (timer > 0 -> timer - 1 : 0)

proctype Time() {
	do
	:: d_step {
		for (i : 0 .. VOTERS - 1) {
			run_down(voter[i].expiry);
			voter[i].grant = (voter[i].expiry > 0 -> voter[i].grant : NOBODY);
			run_down(voter[i].abstain);
			run_down(voter[i].settled)
		}
		for (i : 0 .. CANDIDATES - 1) {
			run_down(candidate[i].round);
			candidate[i].votes = (candidate[i].round > 0 -> candidate[i].votes : 0);
			run_down(candidate[i].until)
		}
		i = 0
	}
	od
}

/* Members of the electorates, and their lease lengths in ticks. */
#ifndef M1
#define M1 7
#define M2 3
#define M3 2
#endif
#ifndef D1
#define D1 1
#define D2 1
#define D3 1
#endif

init {
	atomic {
		record[1].members = M1; record[1].duration = D1;
		record[2].members = M2; record[2].duration = D2;
		record[3].members = M3; record[3].duration = D3;
		for (j : 0 .. VOTERS - 1) {
			voter[j].grant = NOBODY;
			if
			:: M1 & (1 << j) -> voter[j].number = 1; voter[j].longest = D1
			:: else
			fi
		}
		candidate[0].number = 1;
		candidate[1].number = 1;
		for (j : 1 .. VOTERS) { run Vote() }
		for (j : 1 .. CANDIDATES) { run Campaign() }
		j = 0;
		run Time()
	}
}

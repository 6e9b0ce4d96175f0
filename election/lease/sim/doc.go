// Package sim contains only tests. It runs the machine of package lease, with messages in wire format, through random
// schedules of faults in virtual time. It models the machine's surroundings in Herald:
//
//   - process_test.go models package election, which calls the machine and sends its messages: at once, or after a
//     loss once the speaker has processed it;
//   - speaker_test.go models package speaker, which opens the fence for a held lease, and closes it before it steps
//     down;
//   - node_test.go models the kernel's fence, which closes by itself, at most a jiffy late.
//
// The models keep the order of steps that package lease requires of a caller, and may be paused or killed between any
// two. Tests in their own packages check the real components, and speaker/sim checks them together, with an election
// that is never late.
package sim

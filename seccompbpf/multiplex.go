package seccompbpf

import "slices"

// A multiplexer is a syscall whose first argument selects another one.
type multiplexer struct {
	name  string
	mask  uint32         // the bits of the first argument that the kernel looks at
	calls []syscallEntry // by what selects them
}

var multiplexers = []multiplexer{
	{
		name: "socketcall",
		mask: 0xffffffff,
		calls: []syscallEntry{
			{1, "socket"}, {2, "bind"}, {3, "connect"}, {4, "listen"}, {5, "accept"}, {6, "getsockname"},
			{7, "getpeername"}, {8, "socketpair"}, {9, "send"}, {10, "recv"}, {11, "sendto"},
			{12, "recvfrom"}, {13, "shutdown"}, {14, "setsockopt"}, {15, "getsockopt"}, {16, "sendmsg"},
			{17, "recvmsg"}, {18, "accept4"}, {19, "recvmmsg"}, {20, "sendmmsg"},
		},
	},
	{
		name: "ipc",
		mask: 0xffff, // the upper half is a version
		calls: []syscallEntry{
			{1, "semop"}, {2, "semget"}, {3, "semctl"}, {4, "semtimedop"}, {11, "msgsnd"}, {12, "msgrcv"},
			{13, "msgget"}, {14, "msgctl"}, {21, "shmat"}, {22, "shmdt"}, {23, "shmget"}, {24, "shmctl"},
		},
	},
}

// translate turns a rule for a multiplexed call into one for the multiplexer, about its first
// argument; ok is false if it has nothing to say.
func (m multiplexer) translate(r Rule) (_ Rule, ok bool) {
	i := slices.IndexFunc(m.calls, func(c syscallEntry) bool { return c.name == r.Syscall })
	if i < 0 || len(r.When) > 0 && r.Action.permits() {
		return Rule{}, false
	}
	r.Syscall = m.name
	r.When = []Cond{{Arg: 0, Op: Equal, Mask: uint64(m.mask), Value: uint64(m.calls[i].nr)}}
	return r, true
}

package seccompbpf

// A multiplexer is a syscall whose first argument selects another one.
type multiplexer struct {
	mask  uint32 // the bits of the first argument that the kernel looks at
	calls map[string]uint32
}

var multiplexers = map[string]multiplexer{
	"socketcall": {
		mask: 0xffffffff,
		calls: map[string]uint32{
			"socket": 1, "bind": 2, "connect": 3, "listen": 4, "accept": 5, "getsockname": 6,
			"getpeername": 7, "socketpair": 8, "send": 9, "recv": 10, "sendto": 11,
			"recvfrom": 12, "shutdown": 13, "setsockopt": 14, "getsockopt": 15, "sendmsg": 16,
			"recvmsg": 17, "accept4": 18, "recvmmsg": 19, "sendmmsg": 20,
		},
	},
	"ipc": {
		mask: 0xffff, // the upper half is a version
		calls: map[string]uint32{
			"semop": 1, "semget": 2, "semctl": 3, "semtimedop": 4, "msgsnd": 11, "msgrcv": 12,
			"msgget": 13, "msgctl": 14, "shmat": 21, "shmdt": 22, "shmget": 23, "shmctl": 24,
		},
	},
}

// translate turns a rule for a multiplexed call into one about the multiplexer's first argument;
// ok is false if it has nothing to say.
func (m multiplexer) translate(r Rule) (_ Rule, ok bool) {
	nr, ok := m.calls[r.Syscall]
	if !ok || len(r.When) > 0 && r.Action.permits() {
		return Rule{}, false
	}
	r.When = []Cond{{Arg: 0, Op: Equal, Mask: uint64(m.mask), Value: uint64(nr)}}
	return r, true
}

package stage

// A Call is a system call by name. Its number is looked up for the architecture
// the program is linked for, never taken from the one this code runs on.
type Call uint8

const (
	Openat Call = iota
	Openat2
	Close
	CloseRange
	Dup3
	Read
	Write
	Writev
	Pread64
	Fchdir
	Chdir
	Chroot
	Mkdirat
	Mknodat
	Symlinkat
	Unlinkat
	Fchmod
	Fchmodat2
	Umask
	Statx
	Fcntl
	Mount
	Umount2
	PivotRoot
	OpenTree
	MoveMount
	MountSetattr
	Unshare
	Setns
	Clone
	Execve
	ExitGroup
	Wait4
	Kill
	PidfdOpen
	Getcpu
	SchedGetaffinity
	SchedSetaffinity
	Getpid
	Getppid
	Setsid
	Setpgid
	Setresuid
	Setresgid
	Setgroups
	Prctl
	Capset
	Prlimit64
	RtSigprocmask
	RtSigaction
	Signalfd4
	Ppoll
	Sethostname
	Socket
	Connect
	Sendto
	Shutdown
	Ioctl
	Seccomp
	Sendmsg
	Readlinkat
	Eventfd2
	calls
)

var callTable = [calls]struct {
	name   string
	number [arches]uint32 // as in linux/arch/*/syscalls
}{
	Openat:           {"openat", [arches]uint32{257, 56}},
	Openat2:          {"openat2", [arches]uint32{437, 437}},
	Close:            {"close", [arches]uint32{3, 57}},
	CloseRange:       {"close_range", [arches]uint32{436, 436}},
	Dup3:             {"dup3", [arches]uint32{292, 24}},
	Read:             {"read", [arches]uint32{0, 63}},
	Write:            {"write", [arches]uint32{1, 64}},
	Writev:           {"writev", [arches]uint32{20, 66}},
	Pread64:          {"pread64", [arches]uint32{17, 67}},
	Fchdir:           {"fchdir", [arches]uint32{81, 50}},
	Chdir:            {"chdir", [arches]uint32{80, 49}},
	Chroot:           {"chroot", [arches]uint32{161, 51}},
	Mkdirat:          {"mkdirat", [arches]uint32{258, 34}},
	Mknodat:          {"mknodat", [arches]uint32{259, 33}},
	Symlinkat:        {"symlinkat", [arches]uint32{266, 36}},
	Unlinkat:         {"unlinkat", [arches]uint32{263, 35}},
	Fchmod:           {"fchmod", [arches]uint32{91, 52}},
	Fchmodat2:        {"fchmodat2", [arches]uint32{452, 452}},
	Umask:            {"umask", [arches]uint32{95, 166}},
	Statx:            {"statx", [arches]uint32{332, 291}},
	Fcntl:            {"fcntl", [arches]uint32{72, 25}},
	Mount:            {"mount", [arches]uint32{165, 40}},
	Umount2:          {"umount2", [arches]uint32{166, 39}},
	PivotRoot:        {"pivot_root", [arches]uint32{155, 41}},
	OpenTree:         {"open_tree", [arches]uint32{428, 428}},
	MoveMount:        {"move_mount", [arches]uint32{429, 429}},
	MountSetattr:     {"mount_setattr", [arches]uint32{442, 442}},
	Unshare:          {"unshare", [arches]uint32{272, 97}},
	Setns:            {"setns", [arches]uint32{308, 268}},
	Clone:            {"clone", [arches]uint32{56, 220}},
	Execve:           {"execve", [arches]uint32{59, 221}},
	ExitGroup:        {"exit_group", [arches]uint32{231, 94}},
	Wait4:            {"wait4", [arches]uint32{61, 260}},
	Kill:             {"kill", [arches]uint32{62, 129}},
	PidfdOpen:        {"pidfd_open", [arches]uint32{434, 434}},
	Getcpu:           {"getcpu", [arches]uint32{309, 168}},
	SchedGetaffinity: {"sched_getaffinity", [arches]uint32{204, 123}},
	SchedSetaffinity: {"sched_setaffinity", [arches]uint32{203, 122}},
	Getpid:           {"getpid", [arches]uint32{39, 172}},
	Getppid:          {"getppid", [arches]uint32{110, 173}},
	Setsid:           {"setsid", [arches]uint32{112, 157}},
	Setpgid:          {"setpgid", [arches]uint32{109, 154}},
	Setresuid:        {"setresuid", [arches]uint32{117, 147}},
	Setresgid:        {"setresgid", [arches]uint32{119, 149}},
	Setgroups:        {"setgroups", [arches]uint32{116, 159}},
	Prctl:            {"prctl", [arches]uint32{157, 167}},
	Capset:           {"capset", [arches]uint32{126, 91}},
	Prlimit64:        {"prlimit64", [arches]uint32{302, 261}},
	RtSigprocmask:    {"rt_sigprocmask", [arches]uint32{14, 135}},
	RtSigaction:      {"rt_sigaction", [arches]uint32{13, 134}},
	Signalfd4:        {"signalfd4", [arches]uint32{289, 74}},
	Ppoll:            {"ppoll", [arches]uint32{271, 73}},
	Sethostname:      {"sethostname", [arches]uint32{170, 161}},
	Socket:           {"socket", [arches]uint32{41, 198}},
	Connect:          {"connect", [arches]uint32{42, 203}},
	Sendto:           {"sendto", [arches]uint32{44, 206}},
	Shutdown:         {"shutdown", [arches]uint32{48, 210}},
	Ioctl:            {"ioctl", [arches]uint32{16, 29}},
	Seccomp:          {"seccomp", [arches]uint32{317, 277}},
	Sendmsg:          {"sendmsg", [arches]uint32{46, 211}},
	Readlinkat:       {"readlinkat", [arches]uint32{267, 78}},
	Eventfd2:         {"eventfd2", [arches]uint32{290, 19}},
}

func (c Call) String() string {
	if c < calls {
		return callTable[c].name
	}
	return "call?"
}

func (c Call) number(a Arch) uint32 { return callTable[c].number[a] }

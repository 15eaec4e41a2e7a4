// Package wire is what the conformance harness and its probe say to each other.
//
// The probe finds the harness on whichever of its descriptors is a Unix socket with a [Question] waiting in
// it, announces itself with [Hello], answers with one line holding a [Answer] as JSON, and then exits when
// told to. Between the answer and the exit it only sleeps, so that the harness can look at it from outside.
package wire

// Magic starts every question, so that the probe recognises the socket without being told its number.
const Magic = `{"PosternProbe":1,`

// Hello is what the probe sends first. The harness learns the probe's process ID from the credentials the
// kernel attaches to it.
const Hello = "\x01postern-probe\x01\n"

// Requests of one byte that the harness may send after the question.
const (
	Ping = 'p' // answered with the same byte
	Quit = 'q' // the probe exits with Question.Exit; end of file means the same
)

// A Question tells the probe what to look at.
type Question struct {
	PosternProbe int
	// Roots are directories whose whole tree is wanted wherever they turn up, as device and inode number.
	Roots []FileID
	// KnownDevices are the devices the host has mounted. A file system on any other device was made by the
	// launcher and is listed completely.
	KnownDevices []uint64
	// Paths are looked at wherever they lie, without descending.
	Paths []string
	// OpenForWriting are files that are opened for writing (and closed again).
	OpenForWriting []string
	// Exit is the exit status of the probe.
	Exit int
}

// FileID identifies a file on this machine.
type FileID struct{ Dev, Ino uint64 }

// An Answer is what the probe sees from inside.
type Answer struct {
	Argv        []string
	Env         []string
	Cwd         string
	PID, PPID   int
	UID, EUID   int
	GID, EGID   int
	Groups      []int
	Hostname    string
	Umask       int
	Dumpable    int
	DeathSignal int
	Securebits  int
	Subreaper   int
	Nice        int
	// Blocked and Ignored are the signals the process was started with.
	Blocked, Ignored []int
	// Rlimits holds soft and hard limit by resource number, as they were when the process started.
	Rlimits map[int][2]uint64
	FDs     map[int]FD
	// Files are keyed by path.
	Files map[string]File
	// Writable holds "ok" or the error of opening for writing, by path.
	Writable   map[string]string
	Interfaces map[string]string
	// Loopback is "ok" or the error of a TCP connection to oneself over 127.0.0.1.
	Loopback string
	// NewUserNamespace is "ok" or the error of creating a user namespace.
	NewUserNamespace string
	// Terminal tells about standard output if it is a terminal: its name if /dev knows it, and whether it
	// can be controlled from here.
	Terminal string
	// InitComm is the name of process 1 in /proc, empty without one.
	InitComm string
	// ProcSelf tells whether /proc shows this very process.
	ProcSelf bool
}

// An FD is one open descriptor.
type FD struct {
	FileID
	Type  string
	Flags string
}

// A File is what lstat and access tell about a path.
type File struct {
	Type    string `json:",omitempty"`
	Mode    string `json:",omitempty"`
	Owner   string `json:",omitempty"`
	Link    string `json:",omitempty"`
	Device  string `json:",omitempty"`
	Content string `json:",omitempty"`
	// Access holds the letters r, w and x for what the process may do.
	Access string `json:",omitempty"`
	// FS is the type of the file system as statfs names it, for directories.
	FS    string `json:",omitempty"`
	Error string `json:",omitempty"`
}

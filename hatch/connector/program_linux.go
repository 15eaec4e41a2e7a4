package connector

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/hatch"
	"github.com/populationgenomics/postern-go/internal/stage"
	"github.com/populationgenomics/postern-go/pidone"
)

// Image is the connector, as an ELF executable for this architecture. The error
// is that there is no stage for it.
func Image() ([]byte, error) { return image() }

var image = sync.OnceValues(func() ([]byte, error) { return program().Image() })

const (
	bufferSize  = 64 << 10 // what a pipe holds
	maxArgs     = 4096     // bytes of the command line that are looked at
	pathOff     = 2        // of sun_path in struct sockaddr_un
	stdin       = stage.Imm(0)
	stdout      = stage.Imm(1)
	stderr      = stage.Imm(2)
	sigsetSize  = stage.Imm(8)
	threadFlags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD | unix.CLONE_SYSVSEM
)

// A writer writes the program. The machine has no stack and no copy of its
// arguments, so they are read in /proc; the path goes straight to its place in
// the socket's address, which lies in slots.
type writer struct {
	*stage.Builder
	address stage.Slot // struct sockaddr_un
	pathLen stage.Slot
	sock    stage.Slot

	report stage.Label // says what failed, with the following, and exits
	what   stage.Slot  // address and length of a text
	errno  stage.Slot  // negative
}

func step(do string) stage.Step { return stage.Step{Do: do} }

func program() *stage.Program {
	w := &writer{Builder: &stage.Builder{}}
	w.address = w.Slots((pathOff + hatch.MaxPath + 1 + 7) / 8)
	w.pathLen, w.sock = w.Slot(), w.Slot()
	w.what, w.errno = w.Slots(2), w.Slot()

	w.arguments()
	w.connect()

	var down stage.Label
	thread := w.Slot()
	w.Emit(stage.Op{Kind: stage.Fork, Dst: thread, Call: stage.Clone, Target: &down, Step: step("start a thread"),
		Args: []stage.Arg{stage.Imm(threadFlags), stage.Imm(0), stage.Imm(0), stage.Imm(0), stage.Imm(0)}})
	w.check(thread, "start a thread for ")
	w.up()
	w.Place(&down)
	w.down()
	w.failure()
	return w.Program()
}

// check ends the program if r is an error. Errors are kept in slots of their
// own, because the two threads share those the machine has for that.
func (w *writer) check(r stage.Slot, what string) {
	var ok stage.Label
	w.If(stage.Jlt, stage.Imm(-1), r, &ok)
	w.fail(what, r)
	w.Place(&ok)
}

func (w *writer) fail(what string, errno stage.Arg) {
	text := "connect: " + what
	w.Move(w.what, stage.Str(text))
	w.Move(w.what+1, stage.Imm(len(text)))
	w.Move(w.errno, errno)
	w.Jump(&w.report)
}

// arguments finds the only argument and makes it the socket's address.
func (w *writer) arguments() {
	const cmdline = "/proc/self/cmdline"
	var skip, measure, end, usage, ok, fits stage.Label
	file, n, at, start, char := w.Slot(), w.Slot(), w.Slot(), w.Slot(), w.Slot()
	line := w.Mem(maxArgs + 8) // zeroed, so that it ends
	next := func() {
		w.If(stage.Jlt, stage.Imm(maxArgs-1), at, &usage)
		w.Load32(char, line, at)
		w.And(char, char, stage.Imm(0xff))
		w.Add(at, at, stage.Imm(1))
	}
	w.Try(file, step("open "+cmdline), stage.Openat, stage.Imm(unix.AT_FDCWD), stage.Str(cmdline), stage.Imm(unix.O_RDONLY|unix.O_CLOEXEC), stage.Imm(0))
	w.check(file, "open "+cmdline)
	w.Try(n, step("read "+cmdline), stage.Read, file, line, stage.Imm(maxArgs))
	w.check(n, "read "+cmdline)
	w.Place(&skip) // the name of the program
	next()
	w.If(stage.Jne, char, stage.Imm(0), &skip)
	w.Move(start, at)
	w.Place(&measure)
	next()
	w.If(stage.Jeq, char, stage.Imm(0), &end)
	w.Add(w.pathLen, w.pathLen, stage.Imm(1))
	w.Jump(&measure)

	w.Place(&end)
	w.If(stage.Jeq, w.pathLen, stage.Imm(0), &usage) // empty or missing
	w.If(stage.Jeq, at, n, &ok)
	w.Place(&usage)
	const text = "usage: connect SOCKET\n"
	w.Try(stage.Discard, step("print the usage"), stage.Write, stderr, stage.Str(text), stage.Imm(len(text)))
	w.exit(2)

	w.Place(&ok)
	w.If(stage.Jlt, w.pathLen, stage.Imm(hatch.MaxPath+1), &fits)
	w.Move(w.pathLen, stage.Imm(0))
	w.fail("the path of the socket", stage.Imm(-int64(unix.ENAMETOOLONG)))
	w.Place(&fits)
	w.Move(w.address, stage.Imm(unix.AF_UNIX)) // both architectures are little-endian
	w.Try(n, step("read "+cmdline), stage.Pread64, file, w.path(), w.pathLen, start)
	w.check(n, "read "+cmdline)
	w.Try(stage.Discard, step("close "+cmdline), stage.Close, file)
}

func (w *writer) path() stage.Arg { return stage.At{Base: stage.SlotAddr(w.address), Off: pathOff} }

func (w *writer) connect() {
	size, r := w.Slot(), w.Slot()
	w.Try(w.sock, step("make a socket"), stage.Socket, stage.Imm(unix.AF_UNIX), stage.Imm(unix.SOCK_STREAM|unix.SOCK_CLOEXEC), stage.Imm(0))
	w.check(w.sock, "make a socket for ")
	w.Add(size, w.pathLen, stage.Imm(pathOff))
	w.Try(r, step("connect"), stage.Connect, w.sock, stage.SlotAddr(w.address), size)
	w.check(r, "")
}

// up copies standard input to the socket. A socket that takes no more ends
// that, but not the other direction, which may have the reason for it.
func (w *writer) up() {
	var read, end, stop, park stage.Label
	buf, n := w.Mem(bufferSize), w.Slot()
	w.Place(&read)
	w.waiting(n, stdin, unix.POLLIN, func() {
		w.Try(n, step("read standard input"), stage.Read, stdin, buf, stage.Imm(bufferSize))
	})
	w.If(stage.Jeq, n, stage.Imm(0), &end)
	w.check(n, "read standard input for ")
	w.writeAll(buf, n, func(r, at, left stage.Slot) {
		w.Try(r, step("send"), stage.Sendto, w.sock, at, left, stage.Imm(unix.MSG_NOSIGNAL), stage.Imm(0), stage.Imm(0))
		w.If(stage.Jeq, r, stage.Imm(-int64(unix.EPIPE)), &stop)
		w.If(stage.Jeq, r, stage.Imm(-int64(unix.ECONNRESET)), &stop)
	}, "send to ")
	w.Jump(&read)

	w.Place(&end)
	w.Try(stage.Discard, step("pass on the end of standard input"), stage.Shutdown, w.sock, stage.Imm(unix.SHUT_WR))
	w.Place(&stop)
	w.Try(stage.Discard, step("close standard input"), stage.Close, stdin)
	w.Place(&park) // until the other thread exits
	w.Try(stage.Discard, step("wait for the other direction"), stage.Ppoll, stage.Imm(0), stage.Imm(0), stage.Imm(0), stage.Imm(0), sigsetSize)
	w.Jump(&park)
}

// down copies the socket to standard output. After that it waits until the
// socket is closed in both directions.
func (w *writer) down() {
	var read, end, wait stage.Label
	buf, n, poll := w.Mem(bufferSize), w.Slot(), w.Slot()
	w.Place(&read)
	w.Try(n, step("receive"), stage.Read, w.sock, buf, stage.Imm(bufferSize))
	w.If(stage.Jeq, n, stage.Imm(0), &end)
	w.check(n, "receive from ")
	w.writeAll(buf, n, func(r, at, left stage.Slot) {
		w.waiting(r, stdout, unix.POLLOUT, func() {
			w.Try(r, step("write standard output"), stage.Write, stdout, at, left)
		})
	}, "write standard output for ")
	w.Jump(&read)

	w.Place(&end)
	w.Try(stage.Discard, step("pass on the end"), stage.Close, stdout)
	w.Move(poll, w.sock) // a struct pollfd that asks for nothing gets POLLHUP
	w.Place(&wait)
	w.Try(n, step("wait for the other direction"), stage.Ppoll, stage.SlotAddr(poll), stage.Imm(1), stage.Imm(0), stage.Imm(0), sigsetSize)
	w.If(stage.Jlt, n, stage.Imm(1), &wait)
	w.exit(0)
}

// waiting makes a call, again whenever it says EAGAIN and the descriptor,
// which somebody has made non-blocking, is ready.
func (w *writer) waiting(r stage.Slot, fd stage.Imm, events int64, call func()) {
	var again, done stage.Label
	poll := w.Slot()
	w.Place(&again)
	call()
	w.If(stage.Jne, r, stage.Imm(-int64(unix.EAGAIN)), &done)
	w.Move(poll, fd+stage.Imm(events<<32))
	w.Try(stage.Discard, step("wait"), stage.Ppoll, stage.SlotAddr(poll), stage.Imm(1), stage.Imm(0), stage.Imm(0), sigsetSize)
	w.Jump(&again)
	w.Place(&done)
}

// writeAll makes write calls until all n bytes at buf are written. A call that
// is stopped by a signal, or whose descriptor is non-blocking, writes some.
func (w *writer) writeAll(buf stage.Mem, n stage.Slot, write func(r, at, left stage.Slot), what string) {
	var again, done stage.Label
	r, at, left, end := w.Slot(), w.Slot(), w.Slot(), w.Slot()
	w.Move(at, buf)
	w.Move(left, n)
	w.Add(end, at, n)
	w.Place(&again)
	write(r, at, left)
	w.If(stage.Jeq, r, left, &done)
	w.check(r, what)
	w.Add(at, at, r)
	w.subtract(left, end, at)
	w.Jump(&again)
	w.Place(&done)
}

// subtract sets dst to x - y, which is between 0 and twice bufferSize. The
// machine does not subtract, so it is found bit by bit.
func (w *writer) subtract(dst, x, y stage.Slot) {
	var loop, next stage.Label
	bit, sum := w.Slot(), w.Slot()
	w.Move(dst, stage.Imm(0))
	w.Move(bit, stage.Imm(bufferSize))
	w.Place(&loop)
	w.Add(sum, y, dst)
	w.Add(sum, sum, bit)
	w.If(stage.Jlt, x, sum, &next)
	w.Add(dst, dst, bit)
	w.Place(&next)
	w.Shr(bit, bit, stage.Imm(1))
	w.If(stage.Jne, bit, stage.Imm(0), &loop)
}

func (w *writer) exit(status int) {
	w.Try(stage.Discard, step("exit"), stage.ExitGroup, stage.Imm(status))
}

// failure says what failed on which path and why.
func (w *writer) failure() {
	var rows stage.Vec // an errno, its text and the length of that
	add := func(errno stage.Imm, text string) {
		rows = append(rows, errno, stage.Str(text+"\n"), stage.Imm(len(text)+1))
	}
	for _, e := range []unix.Errno{
		unix.ENOENT, unix.ECONNREFUSED, unix.ECONNRESET, unix.EACCES, unix.ENOTSOCK, unix.EPROTOTYPE, unix.EPIPE,
		unix.ENAMETOOLONG, unix.ENOTDIR, unix.ELOOP, unix.EMFILE, unix.EAGAIN, unix.EBADF, unix.EISDIR, unix.EIO, unix.ENOSPC,
	} {
		add(stage.Imm(-int64(e)), pidone.ErrnoText(e))
	}
	const end = 0
	add(end, "unexpected error")

	var scan, found stage.Label
	iov, row, errno := w.Slots(8), w.Slot(), w.Slot()
	w.Place(&w.report)
	w.Move(row, rows)
	w.Place(&scan)
	w.Load64(errno, row, stage.Imm(0))
	w.If(stage.Jeq, errno, w.errno, &found)
	w.If(stage.Jeq, errno, stage.Imm(end), &found)
	w.Add(row, row, stage.Imm(24))
	w.Jump(&scan)
	w.Place(&found)
	w.Move(iov, w.what)
	w.Move(iov+1, w.what+1)
	w.Move(iov+2, w.path())
	w.Move(iov+3, w.pathLen)
	w.Move(iov+4, stage.Str(": "))
	w.Move(iov+5, stage.Imm(2))
	w.Load64(iov+6, row, stage.Imm(8))
	w.Load64(iov+7, row, stage.Imm(16))
	w.Try(stage.Discard, step("say what failed"), stage.Writev, stderr, stage.SlotAddr(iov), stage.Imm(4))
	w.exit(1)
}

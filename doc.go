// Package postern runs untrusted code on Linux behind a sealed wall whose only
// openings are the ones its host binds in.
//
// A [Profile] describes the wall. It is a plain value, and its zero value is
// the secure baseline: no network, no files of the host but its system
// libraries and programs, read-only, no capabilities, no way to make more
// namespaces, a filter on system calls, and one directory, the workspace, that
// guest and host share. A [Sandbox] is a wall that runs go through:
//
//	sandbox, err := postern.New(postern.Profile{})
//	if err != nil {
//		return err
//	}
//	defer sandbox.Close()
//	result, err := sandbox.RunPython(ctx, code)
//
// [Sandbox.Run] and its kin wait for the end of a run and collect its output.
// [Sandbox.Start] and its kin return a [Process] at once, whose output can be
// followed live and which can be stopped gracefully.
//
// A guest reaches what its host serves by a hatch: see package hatch and
// [WithHatch]. Its files are best read through [Sandbox.Accessor], which no
// link that the guest planted leads astray.
//
// # What is not promised
//
// The kernel is shared: a flaw in it that is reachable through the system
// calls the filter lets pass is a way out. Memory and CPU time of a guest are
// bounded by resource limits for each of its processes only; bounds for a
// guest as a whole are for a cgroup around the host program.
//
// The package builds on every operating system; away from Linux every launch
// fails with [ErrUnsupported], and on processors other than amd64 and arm64
// with an [*IsolationError].
package postern

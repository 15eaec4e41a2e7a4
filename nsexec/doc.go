// Package nsexec starts one program in namespaces of its own.
//
// A [Spec] spells a launch out in full. It is compiled to a program of system
// calls (see internal/stage), so no copy of the calling process and no second
// Go runtime ever exists between the caller and the guest, and the cost of a
// launch does not depend on the caller's size.
//
// [Start] launches a child and returns a [Process]. A [Template] does that for
// launches that differ in their command only, and is compiled once. [Exec]
// replaces the calling process by the launch and its monitor. [Spec.Explain]
// prints what would run. [Preflight] says what a machine lacks before any
// launch.
//
// Nothing here chooses a policy: a zero Spec runs a program with no wall at
// all. Package postern at the root of this module has the wall.
package nsexec

// Package pidone is the init of a guest's PID namespace, as a fragment of a
// launch program.
//
// The init is PID 1: it starts the command in a process group of its own,
// reaps every orphan, forwards signals to the command's group, reports how the
// command ended and exits with its status, which ends everything else in the
// namespace. It holds one descriptor of its host, the lifeline; when that
// reaches end of file the host is gone and so is the guest.
package pidone

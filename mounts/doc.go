// Package mounts describes the file system of a guest as an ordered list of
// operations and compiles it into the part of a launch program that builds it.
//
// The operations are plain values; see [Op]. They apply in order, and later
// ones may lie on or below earlier ones. The result replaces the root of the
// process that runs the program: nothing of the file system it came from stays
// reachable except what a [Bind] or [Overlay] named.
//
// Sources are paths of the host, resolved there following symbolic links, and
// opened exactly once. Destinations are resolved inside the new root: a
// symbolic link planted in it can lead elsewhere in it, never out, and a link
// as the last component is refused.
//
// # What is not promised
//
// A destination that does not exist is created in whatever lies there. Below a
// writable bind that is the host's own directory, and the created mount point
// stays behind.
package mounts

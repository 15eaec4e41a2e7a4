// The linker lets sigmask.go name a function of the runtime if there is an
// assembly file.

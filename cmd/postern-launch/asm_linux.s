// With an assembly file in the package the linker also lets sigmask.go name a
// function of the runtime.

TEXT ·growStack(SB), 0, $49152-0
	RET

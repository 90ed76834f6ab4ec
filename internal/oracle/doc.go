// Package oracle holds cowaudit against programs whose truth is known: the reproducers of COWAUDIT_CASES, the workloads of
// testdata/workloads, real servers, and every process of the machine. What is not test here are the laws of conservation,
// written down a second time, apart from audit's own check of its results.
//
// A program under test speaks the stage protocol of testdata/workloads/stages.h: at each STAGE it holds still until a line
// is written to it. The tests measure there, compare with the counts that the program was made to have, and with a reader
// of their own (tables_test.go), which shares no code with the product.
package oracle

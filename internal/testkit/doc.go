// Package testkit is what the tests of several packages share: [Require], the only way to skip a test; [Binary] and [CC],
// programs built once; [Start], a process that the test ends; [Stages], a program that holds still at named moments;
// [Main], which fails a test run that left descriptors or processes behind.
//
// It imports no package of the project, so that every package can use it in its own tests.
package testkit

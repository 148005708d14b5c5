@echo off
rem windows.bat: the number of `make same`, then the tests, with a compiler of Visual Studio. In an "x64 Native Tools
rem Command Prompt":
rem
rem   tests\checks\windows.bat               MSVC
rem   tests\checks\windows.bat clang-cl      clang in MSVC mode
rem
rem The status is 0 if the number is correct and no test fails.
setlocal
cd /d "%~dp0..\.."
set CC=%1
if "%CC%"=="" set CC=cl
if not exist build mkdir build
if not exist build\windows mkdir build\windows
set FLAGS=/nologo /O2 /std:c11 /W3 /D_CRT_SECURE_NO_WARNINGS /I. /Itests/support /Fobuild\windows\
set LINK_FLAGS=/link /STACK:8388608
set FAILED=0

echo == same bits
%CC% %FLAGS% tests\same\same_bits.c /Febuild\windows\same_bits.exe %LINK_FLAGS%
if errorlevel 1 (
    echo same_bits.c does not build
    set FAILED=1
) else (
    build\windows\same_bits.exe
    if errorlevel 1 set FAILED=1
)

echo == tests
rem forward slashes: in a response file clang-cl may treat a backslash as an escape
type nul > build\windows\files.rsp
for %%f in (tests\suites\*.c) do echo tests/suites/%%~nxf>> build\windows\files.rsp
for %%f in (tests\support\*.c) do echo tests/support/%%~nxf>> build\windows\files.rsp
%CC% %FLAGS% /DATTN_SERIAL_FLOPS=0 @build\windows\files.rsp /Febuild\windows\test.exe %LINK_FLAGS%
if errorlevel 1 (
    echo the tests do not build
    set FAILED=1
) else (
    build\windows\test.exe
    if errorlevel 1 set FAILED=1
)
exit /b %FAILED%

/* The module realistic_tta.statistics._kernel: its functions, one line each. */
#include "arrays.h"

/* layer(inputs, constant, slope, square_slope, moments, shift, ...): both of a layer, moments being
   filled; what comes behind is for `estimate`. */
static PyObject *layer(ARGUMENTS) {
    PyObject *done = count < 7 ? NULL : image_moments(module, given, 6);
    if (done != Py_True) {
        Py_XDECREF(done);
        Py_RETURN_NONE;
    }
    Py_DECREF(done);
    PyObject *rest[MOST_ARGUMENTS];
    if (count - 5 > MOST_ARGUMENTS) Py_RETURN_NONE;
    rest[0] = given[4];
    memcpy(rest + 1, given + 6, (count - 6) * sizeof(PyObject *));
    return estimate(module, rest, count - 5);
}

#define FUNCTION(name, tells) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, tells}

static PyMethodDef functions[] = {
    FUNCTION(estimate, "Fills batch, mean, variance; spread and source weight; None: not taken."),
    FUNCTION(layer, "The two after each other; None: not taken."),
    FUNCTION(image_moments, "Fills out with both moments of each image; False: not taken."),
    FUNCTION(marks, "Fills out with the marks of the quarters of pictures; False: not taken."),
    FUNCTION(read_backward, "Changes beliefs by the images after each; False: not taken."),
    FUNCTION(read_forward, "Fills beliefs and their sums, image by image; False: not taken."),
    FUNCTION(sight, "Fills signature and scatter from marks; False: not taken."),
    FUNCTION(whitened, "Fills out with the squared lengths of whitened rows; False: not taken."),
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_kernel", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModule_Create(&definition); }

/* statistics/signature.py and content.py: what the first layer sees of pictures, quarter by quarter,
   and how far signatures lie apart. */
#include "arrays.h"
#include <math.h>

#define PARTS 4
#define MARKS 3 /* FEATURES of signature.py */

/* statistics/signature.py, `Marks`, of a part of a channel: mean, mean square, mean square of what
   changes from one position to the next along both axes. */
typedef struct {
    const float *values; /* of the first position, in the first channel that is meant */
    Py_ssize_t rows, columns, row_stride, column_stride;
} Part;

static inline void note(const Part *part, double total, double squares, double changes, float *out,
                        Py_ssize_t next) {
    out[0] = (float)(total / (part->rows * part->columns));
    out[next] = (float)(squares / (part->rows * part->columns));
    out[2 * next] = (float)(changes / ((part->rows - 1) * (part->columns - 1)));
}

/* Where columns lie next to each other: of one channel. Four rows at once, for at the end of a sum
   over columns a vector's own numbers are added, which takes longer than a small picture's row. */
static inline void mark_channel(const Part *part, float centre, float *out, Py_ssize_t next) {
    double total = 0, squares = 0, changes = 0;
    Py_ssize_t rows = part->rows, columns = part->columns, stride = part->row_stride, row = 0;
    for (; row + 4 <= rows; row += 4) {
        const float *own = part->values + row * stride;
        float sum = 0, square = 0;
        for (Py_ssize_t column = 0; column < columns; column++) {
            float one = own[column] - centre, two = own[stride + column] - centre;
            float three = own[2 * stride + column] - centre;
            float four = own[3 * stride + column] - centre;
            sum += (one + two) + (three + four);
            square += (one * one + two * two) + (three * three + four * four);
        }
        total += sum;
        squares += square;
    }
    for (; row < rows; row++)
        for (Py_ssize_t column = 0; column < columns; column++) {
            float value = part->values[row * stride + column] - centre;
            total += value;
            squares += value * value;
        }
    for (row = 1; row + 4 <= rows; row += 4) {
        const float *own = part->values + row * stride;
        float change = 0;
        for (Py_ssize_t column = 1; column < columns; column++) {
            const float *at = own + column;
            float above = at[-stride] - at[-stride - 1], one = at[0] - at[-1];
            float two = at[stride] - at[stride - 1], three = at[2 * stride] - at[2 * stride - 1];
            float four = at[3 * stride] - at[3 * stride - 1];
            change += ((one - above) * (one - above) + (two - one) * (two - one)) +
                      ((three - two) * (three - two) + (four - three) * (four - three));
        }
        changes += change;
    }
    for (; row < rows; row++)
        for (Py_ssize_t column = 1; column < columns; column++) {
            const float *at = part->values + row * stride + column, *above = at - stride;
            float value = (at[0] - at[-1]) - (above[0] - above[-1]);
            changes += value * value;
        }
    note(part, total, squares, changes, out, next);
}

#define LANES 16 /* channels that are added up side by side */

/* Where channels do: of up to LANES of them, every so many. */
static inline void mark_channels(const Part *part, const float *centre, Py_ssize_t some,
                                 Py_ssize_t every, float *out, Py_ssize_t next) {
    double total[LANES] = {0}, squares[LANES] = {0}, changes[LANES] = {0};
    for (Py_ssize_t row = 0; row < part->rows; row++) {
        float sum[LANES] = {0}, square[LANES] = {0}, change[LANES] = {0};
        for (Py_ssize_t column = 0; column < part->columns; column++) {
            const float *own =
                part->values + row * part->row_stride + column * part->column_stride;
            for (Py_ssize_t lane = 0; lane < some; lane++) {
                float value = own[lane * every] - centre[lane * every];
                sum[lane] += value;
                square[lane] += value * value;
            }
            if (row == 0 || column == 0) continue;
            const float *left = own - part->column_stride, *above = own - part->row_stride;
            const float *corner = above - part->column_stride;
            for (Py_ssize_t lane = 0; lane < some; lane++) {
                Py_ssize_t at = lane * every;
                float value = (own[at] - left[at]) - (above[at] - corner[at]);
                change[lane] += value * value;
            }
        }
        for (Py_ssize_t lane = 0; lane < some; lane++) {
            total[lane] += sum[lane];
            squares[lane] += square[lane];
            changes[lane] += change[lane];
        }
    }
    for (Py_ssize_t lane = 0; lane < some; lane++)
        note(part, total[lane], squares[lane], changes[lane], out + PARTS * lane, next);
}

FAST static void mark_all(const Py_buffer *inputs, const float *centre, Py_ssize_t every,
                          float *out) {
    const Py_ssize_t *shape = inputs->shape;
    Py_ssize_t stride[4], looked_at = (shape[1] + every - 1) / every;
    Py_ssize_t next = PARTS * shape[0] * looked_at;
    for (int axis = 0; axis < 4; axis++) stride[axis] = inputs->strides[axis] / 4;
    for (Py_ssize_t image = 0; image < shape[0]; image++)
        for (int place = 0; place < PARTS; place++) {
            Part whole = {NULL, shape[2] / 2, shape[3] / 2, stride[2], stride[3]};
            whole.values = (const float *)inputs->buf + image * stride[0] +
                           (place / 2) * whole.rows * stride[2] +
                           (place % 2) * whole.columns * stride[3];
            for (Py_ssize_t channel = 0; channel < looked_at;) {
                Py_ssize_t at = channel * every, left = looked_at - channel;
                float *of = out + PARTS * (image * looked_at + channel) + place;
                Part part = whole;
                part.values += at * stride[1];
                if (stride[3] == 1) {
                    mark_channel(&part, centre[at], of, next);
                    channel++;
                } else if (every == 1 && left >= LANES) {
                    mark_channels(&part, centre + at, LANES, 1, of, next);
                    channel += LANES;
                } else {
                    Py_ssize_t some = left < LANES ? left : LANES;
                    mark_channels(&part, centre + at, some, every, of, next);
                    channel += some;
                }
            }
        }
}

/* marks(inputs, centre, out, every) */
PyObject *marks(ARGUMENTS) {
    (void)module;
    Floats held[3];
    int taken = 0, fits = count == 4;
    Py_ssize_t every = fits ? PyLong_AsSsize_t(given[3]) : 0;
    if (every < 1) {
        PyErr_Clear();
        fits = 0;
    }
    for (; fits && taken < 3; taken++) fits = hold(&held[taken], given[taken], taken == 2);
    const Py_buffer *inputs = &held[0].view;
    fits = fits && inputs->ndim == 4 && inputs->shape[2] >= 4 && inputs->shape[3] >= 4 &&
           (inputs->strides[3] == 4 || inputs->strides[1] == 4);
    if (fits) {
        Py_ssize_t looked_at = (inputs->shape[1] + every - 1) / every;
        fits = is_row(&held[1], inputs->shape[1]) &&
               is_row(&held[2], MARKS * PARTS * inputs->shape[0] * looked_at);
    }
    if (fits) {
        Py_BEGIN_ALLOW_THREADS mark_all(inputs, start(&held[1]), every, start(&held[2]));
        Py_END_ALLOW_THREADS
    }
    let_go(held, taken);
    return PyBool_FromLong(fits);
}

/* ---- signatures ----------------------------------------------------------------------------- */

typedef struct {
    Py_ssize_t images, channels, every;
    const float *marks, *scale; /* (3, image, channel, part); of all channels, (channel,) */
    double floor, most;
    float *signature, *scatter; /* (feature,), (feature, feature) */
} Sight;

/* Between -most and most, which is also what is not a number. */
static inline double within(double value, double most) {
    if (!(value < most)) return most;
    return value > -most ? value : -most;
}

/* Three numbers a channel of one part or of a whole image: mean, and two logarithms. */
static void describe(const Sight *of, const double (*marked)[MARKS], double *features) {
    for (Py_ssize_t channel = 0; channel < of->channels; channel++) {
        double scale = of->scale[channel * of->every], square = scale * scale;
        double mean = marked[channel][0] * scale;
        double variance = marked[channel][1] * square - mean * mean;
        double change = marked[channel][2] * square;
        variance = variance < 0 ? 0 : variance; /* what is not a number stays so */
        change = change < 0 ? 0 : change;
        features[channel] = within(mean, of->most);
        features[of->channels + channel] = within(log(variance + of->floor), of->most);
        features[2 * of->channels + channel] = within(log(change + of->floor), of->most);
    }
}

/* Room for parts, the whole, sums and scatter: see `sight`. */
FAST static void look(const Sight *of, double *room) {
    Py_ssize_t channels = of->channels, features = MARKS * channels;
    double *parts = room, *whole = parts + PARTS * features, *sums = whole + features;
    double *scatter = sums + features;
    double(*marked)[MARKS] = (double(*)[MARKS])(scatter + features * features);
    double(*all)[MARKS] = marked + channels;
    Py_ssize_t next = of->images * channels * PARTS;
    memset(sums, 0, (features + features * features) * sizeof(double));
    for (Py_ssize_t image = 0; image < of->images; image++) {
        const float *own = of->marks + image * channels * PARTS;
        memset(all, 0, features * sizeof(double));
        for (int part = 0; part < PARTS; part++) {
            for (Py_ssize_t channel = 0; channel < channels; channel++)
                for (int kind = 0; kind < MARKS; kind++) {
                    double value = own[kind * next + channel * PARTS + part];
                    marked[channel][kind] = value;
                    all[channel][kind] += value / PARTS;
                }
            describe(of, (const double(*)[MARKS])marked, parts + part * features);
        }
        describe(of, (const double(*)[MARKS])all, whole);
        for (Py_ssize_t place = 0; place < features; place++) {
            double mean = 0;
            sums[place] += whole[place];
            for (int part = 0; part < PARTS; part++) mean += parts[part * features + place];
            for (int part = 0; part < PARTS; part++) parts[part * features + place] -= mean / PARTS;
        }
        for (int part = 0; part < PARTS; part++) {
            const double *apart = parts + part * features;
            for (Py_ssize_t row = 0; row < features; row++)
                for (Py_ssize_t column = 0; column <= row; column++)
                    scatter[row * features + column] += apart[row] * apart[column];
        }
    }
    for (Py_ssize_t row = 0; row < features; row++) {
        of->signature[row] = (float)(sums[row] / of->images);
        for (Py_ssize_t column = 0; column <= row; column++) {
            float value = (float)(scatter[row * features + column] / (PARTS - 1));
            of->scatter[row * features + column] = value;
            of->scatter[column * features + row] = value;
        }
    }
}

/* sight(marks, scale, signature, scatter, every, floor, most) */
PyObject *sight(ARGUMENTS) {
    (void)module;
    Floats held[4];
    Sight of = {0};
    int taken = 0, fits = count == 7 && take(given[5], &of.floor) && take(given[6], &of.most);
    of.every = fits ? PyLong_AsSsize_t(given[4]) : 0;
    if (of.every < 1) {
        PyErr_Clear();
        fits = 0;
    }
    for (; fits && taken < 4; taken++) fits = hold(&held[taken], given[taken], taken >= 2);
    fits = fits && held[0].view.ndim == 4 && held[0].view.len > 0;
    if (fits) {
        const Py_ssize_t *shape = held[0].view.shape;
        of.images = shape[1], of.channels = shape[2];
        Py_ssize_t features = MARKS * of.channels;
        fits = shape[0] == MARKS && shape[3] == PARTS && is_row(&held[0], length(&held[0].view)) &&
               length(&held[1].view) > (of.channels - 1) * of.every && in_a_row(&held[1].view, 0) &&
               is_row(&held[2], features) && is_row(&held[3], features * features);
        size_t numbers = (size_t)features * (PARTS + 4 + features);
        double *room = fits ? malloc(numbers * sizeof(double)) : NULL;
        fits = room != NULL;
        if (fits) {
            of.marks = start(&held[0]), of.scale = start(&held[1]);
            of.signature = start(&held[2]), of.scatter = start(&held[3]);
            Py_BEGIN_ALLOW_THREADS look(&of, room);
            Py_END_ALLOW_THREADS
        }
        free(room);
    }
    let_go(held, taken);
    return PyBool_FromLong(fits);
}

/* ---- distances ------------------------------------------------------------------------------ */

/* The lower triangle of a matrix becomes its Cholesky factor; 0 where it has none. */
FAST static int factorise(double *matrix, Py_ssize_t size) {
    for (Py_ssize_t row = 0; row < size; row++) {
        double *own = matrix + row * size;
        for (Py_ssize_t column = 0; column <= row; column++) {
            const double *other = matrix + column * size;
            double sum = own[column];
            for (Py_ssize_t place = 0; place < column; place++) sum -= own[place] * other[place];
            if (column < row)
                own[column] = sum / other[column];
            else if (sum > 0)
                own[column] = sqrt(sum);
            else
                return 0;
        }
    }
    return 1;
}

/* The squared length of a row divided by the factor. */
FAST static double squared(const double *factor, Py_ssize_t size, const float *row, double *solved) {
    double sum = 0;
    for (Py_ssize_t place = 0; place < size; place++) {
        const double *own = factor + place * size;
        double rest = row[place];
        for (Py_ssize_t before = 0; before < place; before++) rest -= own[before] * solved[before];
        solved[place] = rest / own[place];
        sum += solved[place] * solved[place];
    }
    return sum;
}

/* whitened(scatter, rows, out, off_diagonal, diagonal, least): content.py, `whitening`, `whiten` */
PyObject *whitened(ARGUMENTS) {
    (void)module;
    Floats held[3];
    double off = 0, diagonal = 0, least = 0;
    int taken = 0, fits = count == 6 && take(given[3], &off) && take(given[4], &diagonal) &&
                          take(given[5], &least);
    for (; fits && taken < 3; taken++) fits = hold(&held[taken], given[taken], taken == 2);
    fits = fits && held[1].view.ndim == 2;
    if (fits) {
        Py_ssize_t rows = held[1].view.shape[0], size = held[1].view.shape[1];
        fits = size > 0 && is_row(&held[0], size * size) && is_row(&held[1], rows * size) &&
               is_row(&held[2], rows);
        double *matrix = fits ? malloc((size + 1) * size * sizeof(double)) : NULL;
        fits = matrix != NULL;
        if (fits) {
            const float *scatter = start(&held[0]), *values = start(&held[1]);
            float *out = start(&held[2]);
            Py_BEGIN_ALLOW_THREADS for (Py_ssize_t row = 0; row < size; row++) {
                for (Py_ssize_t column = 0; column < row; column++)
                    matrix[row * size + column] = scatter[row * size + column] * off;
                matrix[row * size + row] = scatter[row * size + row] * diagonal + least;
            }
            fits = factorise(matrix, size);
            for (Py_ssize_t row = 0; fits && row < rows; row++)
                out[row] = (float)squared(matrix, size, values + row * size, matrix + size * size);
            Py_END_ALLOW_THREADS
        }
        free(matrix);
    }
    let_go(held, taken);
    return PyBool_FromLong(fits);
}

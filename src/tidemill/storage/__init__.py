"""Where the files of tables are stored: a local directory or an S3-compatible object store.

Two adapters implement the `TableFiles` port of `catalog`: `local.LocalTableFiles` and `s3.S3TableFiles`.
Through it the catalog reads manifests, gives a staged manifest its final name if nobody else has it
(`copy_if_absent`), removes dropped tables, and vends storage options to clients. `warehouse` adds what only
the server needs.

Around the two adapters:

- `confinement`: no operation may leave the warehouse or remove part of another table
- `s3_client` and `client_options`: boto3 clients, their errors, and the AWS settings of every client library
- `vending`: credentials for clients, if possible restricted to one table
- `signing` and `signed_targets`: remote signing of S3 requests for Iceberg clients
- `filesystems`: Arrow file systems for checkpoints and reports of tasks

Table data does not pass through here: Lance and Arrow read and write it directly.

Storage may import `catalog` and `errors`, and nothing that knows Lance, Spark or SQL. `boto3` is optional and
imported only for `s3://` warehouses.
"""
